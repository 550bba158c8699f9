"""The jobs of an archive, as the ordering problem uses them; what a log leaves open is settled by counted rules.

Left out: `cancelled`, jobs that were given up before they started; `no_run_time`, jobs whose run time the log did not
see; `no_processors`, jobs that request none.
Changed: `zero_run_time`, jobs that ended within the second in which they began run for 1 s; `no_request`, jobs
that request no run time are taken to request the longest time requested in the log (where no job
requests one, the longest run time): a scheduler without a limit expects the worst.

A job that was given up has no run time, so it is in no figure; but it may have delayed others. On request,
`withdrawn` ones are kept where the log has that instant: they wait until then, and nothing else in the queue uses it.

Jobs larger than a pool and jobs that outrun their request are counted by the replay, which has the pool.
"""

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.archive import Archive
from twin.ordering.pools import NODES_OF_JOBS, rows_of_pool
from twin.ordering.types import Jobs, NoJobsError

SHORTEST_RUN_S = 1.0
COLUMNS = (
    "request_id",
    "arrival",
    "agent",
    "cpu_cores",
    "requested_run_s",
    "start",
    "finish",
    "run_s",
    "status",
)
GIVEN_UP, UNSURE = ("killed", "dropped", "rejected"), ("failed", "unknown")
"""How requests end that were given up where they have no start; and, besides, where they ran for no time."""


def read_jobs(
    archive: Archive,
    *,
    pool: str | None = None,
    withdraw: bool = False,
    counted: tuple[date, date] | None = None,
) -> Jobs:
    """Reads jobs.

    Args:
        archive: where from.
        pool: name of the pool whose jobs are read; the jobs of all nodes together if None.
        withdraw: whether jobs that were cancelled before they started wait until then, in place of being left out.
        counted: first and last day of arrival of the jobs that `counts` is about; all that are read if None.

    Returns:
        The jobs that ran (and those that are withdrawn), in order of arrival; `counts` has how many each rule changed.

    Raises:
        ConfigError: the archive has no such pool.
        NoJobsError: no job is usable.
    """
    rows, left_out = _rows(archive, pool, counted)
    arrival_us, start_us, finish_us = (_instants_us(rows[name]) for name in ("arrival", "start", "finish"))
    run_s = np.where(np.isnan(finish_us - start_us), _numbers(rows["run_s"]), (finish_us - start_us) / 1e6)
    processors, requested_s = _numbers(rows["cpu_cores"]), _numbers(rows["requested_run_s"])
    cancelled = _cancelled(rows["status"], start_us, run_s)
    withdrawn = cancelled & (finish_us > arrival_us) & (processors > 0.0) & withdraw
    cancelled &= ~withdrawn
    no_run_time, no_processors = np.isnan(run_s) & ~cancelled & ~withdrawn, ~(processors > 0.0)
    usable = np.flatnonzero(~no_run_time & ~no_processors & ~cancelled)
    if not len(usable):
        raise NoJobsError(
            "no job has both processors and a run time",
            where=f"{archive.path}, table requests, {rows.num_rows:,} rows"
            + ("" if pool is None else f" of the pool {pool}"),
            allowed="rows with cpu_cores, and with start and finish or run_s",
            advice="choose other days, or another log; where jobs wait for GPUs, import with requests_csv "
            "and a mapping of their number to cpu_cores, where each takes one place, of constant = 1",
        )
    request_id = rows["request_id"].to_numpy(zero_copy_only=False)
    usable = usable[_in_order(arrival_us[usable], request_id[usable])]
    origin_us = int(arrival_us[usable[0]])
    run_s, requested_s, withdrawn = run_s[usable], requested_s[usable], withdrawn[usable]
    zero, no_request = (run_s <= 0.0) & ~withdrawn, ~(requested_s > 0.0)
    here = _within(rows, counted)
    counts = {
        "cancelled": cancelled & here,
        "withdrawn": withdrawn & here[usable],
        "no_run_time": no_run_time & here,
        "no_processors": no_processors & ~no_run_time & ~cancelled & here,
        "zero_run_time": zero & here[usable],
        "no_request": no_request & here[usable],
    }
    run_s = np.where(zero, SHORTEST_RUN_S, run_s)
    requested_s = np.where(no_request, _longest(requested_s[~no_request], run_s[~withdrawn]), requested_s)
    finish_s = (finish_us[usable] - origin_us) / 1e6
    return Jobs(
        request_id=request_id[usable],
        arrival_s=(arrival_us[usable] - origin_us) / 1e6,
        processors=processors[usable],
        requested_s=requested_s,
        run_s=np.where(withdrawn, requested_s, run_s),  # they would have run for an unknown time
        logged_start_s=(start_us[usable] - origin_us) / 1e6,
        agent=_codes(rows["agent"])[usable],
        origin_us=origin_us,
        counts=(*((rule, int(rows_hit.sum())) for rule, rows_hit in counts.items()), *left_out.items()),
        withdrawn_s=np.where(withdrawn, finish_s, np.nan) if withdraw else None,
    )


def _rows(
    archive: Archive, pool: str | None, counted: tuple[date, date] | None
) -> tuple[pa.Table, dict[str, int]]:
    if pool is None:
        return archive.read("requests", columns=COLUMNS), {}
    rows = archive.read("requests", columns=(*COLUMNS, *NODES_OF_JOBS))
    own, left_out = rows_of_pool(archive, rows, pool)
    if counted is not None:
        left_out = rows_of_pool(archive, rows.filter(pa.array(_within(rows, counted))), pool)[1]
    return own, left_out


def _within(rows: pa.Table, days: tuple[date, date] | None) -> np.ndarray:
    """[rows] bool: arrived on these days, the last included; all jobs without days."""
    if days is None:
        return np.ones(rows.num_rows, bool)
    day = np.asarray(rows["arrival"].cast(pa.date32()).cast(pa.int32()))
    first, last = ((one - date(1970, 1, 1)).days for one in days)
    return (day >= first) & (day <= last)


def clairvoyant(jobs: Jobs) -> Jobs:
    """The same jobs, requesting exactly the time they will run, as under a perfect prediction."""
    return jobs._replace(requested_s=jobs.run_s)


def _cancelled(status: pa.ChunkedArray, start_us: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    """[rows] bool: given up without a start."""
    given_up, unsure = (
        np.asarray(pc.is_in(status.cast(pa.string()), value_set=pa.array(names)))
        for names in (GIVEN_UP, UNSURE)
    )
    return np.isnan(start_us) & ((given_up & ~(run_s > 0.0)) | (unsure & (run_s <= 0.0)))


def _longest(requested_s: np.ndarray, run_s: np.ndarray) -> float:
    return float(np.max(requested_s if len(requested_s) else run_s, initial=SHORTEST_RUN_S))


def _in_order(arrival_us: np.ndarray, request_id: np.ndarray) -> np.ndarray:
    text = request_id.astype(str)
    return np.lexsort((text, np.char.str_len(text), arrival_us))


def _instants_us(values: pa.ChunkedArray) -> np.ndarray:
    """Microseconds since 1970 as float64, exact until the year 2255; NaN for null."""
    return _numbers(values.cast(pa.int64()))


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _codes(values: pa.ChunkedArray) -> np.ndarray:
    whole = values.unify_dictionaries().combine_chunks()
    return np.asarray(pc.fill_null(whole.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False))

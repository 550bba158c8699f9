"""What generated days are made of: arrival times learned from an archive, and agents as rows of requests."""

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from logs_schema import Archive
from logs_schema.calendar import DAY_S, DAYS_A_WEEK
from logs_schema.columns import arrow_schema
from logs_schema.tables import REQUESTS, SCHEMA_VERSION
from twin.population.agents import (
    ACTIVITY,
    ANY_NODE,
    CANDIDATES,
    SEPARATOR,
    UNKNOWN,
    AgentConditions,
    AgentTable,
)
from twin.population.arrival_times import HOURS_A_DAY, ArrivalModel, counts_of_hours, fit_arrivals, rates

NUM_PARTS = 12
MOST_ARRIVALS = 500_000
"""Of more, gaps are learned from some: what learning takes does not grow with the log."""


def read_arrivals(archive: Archive, days: Sequence[dt.date]) -> ArrivalModel:
    """Learns arrival times from days of an archive, reading one column, a batch in memory at a time.

    Rates come from all days. Of more than `MOST_ARRIVALS` arrivals gaps come from evenly many of the days, and of a day
    that is larger from its beginning.
    """
    sizes = np.array([archive.num_rows("requests", day) for day in sorted(days)])
    stride = max(1, -(-int(sizes.sum()) // MOST_ARRIVALS))
    looked_at = sorted(days)[::stride]
    if stride == 1:
        return fit_arrivals(_arrivals(archive, looked_at), _since_1970(looked_at))
    counts = sum(map(counts_of_hours, _batches(archive, days)), np.zeros((DAYS_A_WEEK, HOURS_A_DAY)))
    rate_per_s = rates(counts, np.array(_since_1970(days)))
    room = MOST_ARRIVALS // len(looked_at)
    some = np.concatenate([_arrivals(archive, [day], room) for day in looked_at])
    return fit_arrivals(some, _since_1970(looked_at), rate_per_s)


def _arrivals(archive: Archive, days: Sequence[dt.date], most: int | None = None) -> np.ndarray:
    """[arrivals] seconds since 1970, sorted; of more than `most` the first ones."""
    found: list[np.ndarray] = []
    for batch in _batches(archive, days):
        found.append(batch)
        if most is not None and sum(map(len, found)) >= most:
            break
    return np.sort(np.concatenate([*found, np.zeros(0)]))[:most]


def _batches(archive: Archive, days: Sequence[dt.date]) -> Iterator[np.ndarray]:
    for batch in archive.scan("requests", days=days, columns=["arrival"]):
        yield batch.column(0).cast(pa.int64()).to_numpy() / 1e6


def _since_1970(days: Sequence[dt.date]) -> list[int]:
    return [(day - dt.date(1970, 1, 1)).days for day in days]


def conditions_of_parts(
    random: np.random.Generator, known: AgentConditions, part: np.ndarray
) -> AgentConditions:
    """Conditions of agents in given parts of the day [rows], drawn among known ones of the same part.

    In a part that nothing is known of scenarios are drawn among all, and the time is the middle of the part.
    """
    part_of_known = np.minimum((known.day_fraction * NUM_PARTS).astype(int), NUM_PARTS - 1)
    rows = np.zeros(len(part), np.int64)
    day_fraction = np.zeros(len(part))
    for number in range(NUM_PARTS):
        here, among = part == number, np.flatnonzero(part_of_known == number)
        chosen = random.choice(among if len(among) else len(part_of_known), int(here.sum()))
        rows[here] = chosen
        day_fraction[here] = known.day_fraction[chosen] if len(among) else (number + 0.5) / NUM_PARTS
    return AgentConditions(known.scenario[rows], day_fraction)


def as_requests(agents: AgentTable) -> pa.Table:
    """Agents as rows of the archive's table `requests`, on a Monday, with no outcome; names are their row numbers."""
    monday = dt.datetime(1970, 1, 5, tzinfo=dt.UTC)
    schema = arrow_schema(REQUESTS, SCHEMA_VERSION)
    found: dict[str, list] = {name: [None] * agents.num_rows for name in schema.names}
    seconds = agents.conditions.day_fraction * DAY_S
    found["arrival"] = [monday + dt.timedelta(seconds=float(second)) for second in seconds]
    found["request_id"] = [f"generated-{number}" for number in range(agents.num_rows)]
    found["site"], found["status"] = [UNKNOWN] * agents.num_rows, ["unknown"] * agents.num_rows
    for name, column in agents.labels.items():
        if name != CANDIDATES:
            found[name] = [label if label != UNKNOWN or name == "site" else None for label in column.tolist()]
    for name, column in agents.continuous.items():
        if name == ACTIVITY:
            found["agent"] = found["request_id"]
        else:
            amounts = [None if np.isnan(value) else value for value in column.tolist()]
            found[name] = (
                [value if value is None else round(value) for value in amounts]
                if name == "num_nodes"
                else amounts
            )
    lists = agents.categorical.get(CANDIDATES, np.full(agents.num_rows, ANY_NODE)).tolist()
    found[CANDIDATES] = [None if text == ANY_NODE else text.split(SEPARATOR) for text in lists]
    return pa.table(
        {name: pa.array(found[name], schema.field(name).type) for name in schema.names}, schema=schema
    )

"""Accuracy of the twin's outcomes: logged and forecast one step ahead, for the same requests and decisions."""

from collections.abc import Sequence

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import RESOLUTION, Forecast
from evaluation.certify.lines import Line, not_applicable
from evaluation.certify.logged_days import DayOutcomes, HeldOutDay, rows_of
from evaluation.certify.resampled import Units
from evaluation.certify.samples import Sample
from evaluation.certify.two_samples import Trio, two_sample_lines
from evaluation.comparison.report import Chart, Curve
from logs_schema.errors import ConfigError
from twin.placement.types import COMPLETED, FAILED, REJECTED, STATUS_NAMES
from twin.placement.windows import Windows

SECTION = "answers one step ahead"
BLOCKS_PER_DAY = 12
DURATIONS = {"wait": "wait_s", "run time": "run_s", "response time": "response_s"}
COLUMNS = (*DURATIONS, "answer")
OFTEN, TICK = 0.01, 1e-3
"""Share of the rows that makes a value a repeated one, and how far apart its logarithms may be."""


def table_of(simulated: DayOutcomes, service: np.ndarray, known: np.ndarray) -> Sample:
    """Outcomes with service and node as context; durations as `log(1 + seconds)`."""
    continuous = {name: np.log1p(getattr(simulated, field)[known]) for name, field in DURATIONS.items()}
    context = {"service": service[known], "node": simulated.node[known]}
    return Sample(continuous, {"answer": simulated.answer[known], **context})


def refuse_few(parts: Sequence[Windows], min_rows: int) -> None:
    """Raises unless the held-out days, given as disjoint windows, have enough known outcomes.

    Raises:
        ConfigError: Fewer than `min_rows` requests have a known decision and outcome.
    """
    num_rows = 0
    for part in parts:
        is_known = np.isfinite(part.fate.finish_s) | (part.fate.status == REJECTED)
        num_rows += int(np.sum(part.valid() & is_known & (part.node >= 0)))
    if num_rows < min_rows:
        raise ConfigError(
            "too few requests with a known decision and outcome for a certificate",
            where=f"{num_rows} on the {len(parts)} held-out day(s)",
            allowed=f"{min_rows} or more",
            advice="name more days (--days), or see the capability matrix of `schedtwin check`",
        )


def answers_trio(forecast: Forecast, partners: Sequence[HeldOutDay]) -> Trio:
    """The held-out days' answers, one forecast of each, and the answers of the partner days.

    Left out are outcomes that are unknown in the log, forecasts of an end after the end of the log, and forecasts of
    requests with an unknown outcome whose draws all end within the log.
    """
    known = forecast.known
    rows, draw = np.arange(len(known)), np.arange(len(known)) % forecast.draws_accepted.shape[1]
    drawn = [
        leaf[rows, draw] for leaf in (forecast.draws_status, forecast.draws_wait_s, forecast.draws_run_s)
    ]
    logged = _simulated(forecast.node, forecast.status, forecast.wait_s, forecast.run_s)
    real = Units(table_of(logged, forecast.service, known), forecast.unit[known])
    ends = ~np.isin(drawn[0], (COMPLETED, FAILED)) | np.isfinite(drawn[2])
    ends &= known | ~np.isfinite(forecast.draws_run_s).all(axis=1)
    generated = Units(
        table_of(_simulated(forecast.node, *drawn), forecast.service, ends), forecast.unit[ends]
    )
    other = []
    for day in partners:
        service = rows_of(day.windows, day.counted, day.windows.request.service)
        other.append(table_of(day.logged, service, day.logged.known))
    whole = together([Units(part, np.zeros(part.num_rows, np.int64)) for part in other])
    unit = consecutive(whole.sample.num_rows, forecast.num_units)
    return equal_where_repeated(Trio(real, generated, Units(whole.sample, unit), forecast.num_units))


def equal_where_repeated(trio: Trio) -> Trio:
    """A trio of columns of logarithms whose values count as equal within `RESOLUTION` of one that the log repeats.

    A forecast of .99 s is right where the log can only say 1 s, as in the calibration of forecasts; and distances from
    a column that is the same second everywhere would have no scale. The values of all samples become the log's.
    """
    repeated = {name: often_repeated(column) for name, column in trio.real.sample.continuous.items()}

    def as_in_the_log(part: Units) -> Units:
        continuous = {name: _equal(column, repeated[name]) for name, column in part.sample.continuous.items()}
        return Units(Sample(continuous, part.sample.categorical), part.unit)

    real, generated, other = (as_in_the_log(part) for part in (trio.real, trio.generated, trio.other))
    return Trio(real, generated, other, trio.num_units)


def often_repeated(column: np.ndarray) -> np.ndarray:
    """Values of a column, ascending, that `OFTEN` of its rows have within a `TICK`; of those within `RESOLUTION`
    of each other the most frequent one."""
    known = column[np.isfinite(column)]
    _, first_row, counts = np.unique(np.round(known / TICK), return_index=True, return_counts=True)
    kept: list[float] = []
    for index in np.argsort(-counts, kind="stable"):
        if counts[index] < max(OFTEN * len(known), 2):
            break
        value = float(known[first_row[index]])
        if all(abs(value - other) > RESOLUTION for other in kept):
            kept.append(value)
    return np.sort(kept)


def _equal(column: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A column with the nearest of `values`, ascending, in place of what lies within `RESOLUTION` of it."""
    if not len(values):
        return column
    above = np.searchsorted(values, column)
    low, high = values[np.maximum(above - 1, 0)], values[np.minimum(above, len(values) - 1)]
    nearest = np.where(np.abs(column - low) <= np.abs(column - high), low, high)
    return np.where(np.abs(column - nearest) <= RESOLUTION, nearest, column)


def _simulated(node: np.ndarray, status: np.ndarray, wait_s: np.ndarray, run_s: np.ndarray) -> DayOutcomes:
    """Outcomes as of a replication."""
    ran = np.isin(status, (COMPLETED, FAILED))
    wait_s, run_s = (np.where(ran, column, np.nan) for column in (wait_s, run_s))
    answer = np.array([STATUS_NAMES.get(int(one), "unknown") for one in status], dtype="U9")
    return DayOutcomes(node, wait_s, run_s, wait_s + run_s, answer, ran, np.ones(len(node), bool))


def answer_lines(trio: Trio, config: CertifyConfig) -> list[Line]:
    """All lines about outcomes; a column with a single value in the log is not applicable."""
    kinds = {name for part in trio[:2] for name in np.unique(part.sample.categorical["answer"])}
    columns = COLUMNS if len(kinds) > 1 else COLUMNS[:-1]
    lines = two_sample_lines(SECTION, trio, columns, config)
    if len(kinds) == 1:
        lines.append(
            not_applicable(SECTION, "KL of answer", f"all requests of these days end as {kinds.pop()}")
        )
    return lines


def distribution_charts(trio: Trio, label: str = "forecast") -> tuple[Chart, ...]:
    """Distribution functions of the durations: log, twin (as `label`), another day."""
    charts = []
    for name in DURATIONS:
        curves = []
        for name_of, part in (
            ("held-out days", trio.real),
            (label, trio.generated),
            ("another real day", trio.other),
        ):
            column = part.sample.continuous[name]
            column = np.sort(column[np.isfinite(column)])
            if len(column) >= 2:
                shares = np.linspace(0.0, 1.0, 101)
                curves.append(Curve(name_of, tuple(np.expm1(np.quantile(column, shares))), tuple(shares)))
        if curves:
            charts.append(
                Chart(
                    f"Distribution of {name}",
                    f"{name} (s, logarithmic)",
                    "share of requests below",
                    tuple(curves),
                    logarithmic=True,
                )
            )
    return tuple(charts)


def consecutive(num_rows: int, num_blocks: int) -> np.ndarray:
    """[rows] index of a row's block, of `num_blocks` consecutive blocks of equal size."""
    return np.arange(num_rows) * num_blocks // max(num_rows, 1)


def together(parts: Sequence[Units]) -> Units:
    """Several samples of the same columns as one."""
    first = parts[0].sample
    sample = Sample(
        {name: np.concatenate([part.sample.continuous[name] for part in parts]) for name in first.continuous},
        {
            name: np.concatenate([part.sample.categorical[name] for part in parts])
            for name in first.categorical
        },
    )
    return Units(sample, np.concatenate([part.unit for part in parts]))

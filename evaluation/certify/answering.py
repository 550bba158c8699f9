"""How well the twin answers: outcomes of the same requests and decisions, logged and in the twin, line by line."""

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.bootstrap import Statistic
from evaluation.certify.arrival_statistics import PARTS_OF_DAY
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, against_limit, not_applicable
from evaluation.certify.playing import Day, Lived, rows_of
from evaluation.certify.resampled import Units
from evaluation.certify.samples import Sample
from evaluation.certify.two_samples import Trio, two_sample_lines
from evaluation.report import Chart, Curve
from logs_schema.errors import ConfigError
from twin.placement.encoding import Encoding

SECTION = "answers"
OFFLOAD = "offload over the day"
BLOCKS_PER_DAY = 12
MIN_DAYS = 8
"""From so many held-out days on, whole days are the units, else blocks of consecutive requests of a day."""
BLOCKS_PER_PART = 4
DURATIONS = {"wait": "wait_s", "run time": "run_s", "response time": "response_s"}
COLUMNS = (*DURATIONS, "answer")


def table_of(day: Day, lived: Lived, known: np.ndarray) -> Sample:
    """Outcomes beside what was asked and where it went; durations as `log(1 + seconds)`."""
    continuous = {name: np.log1p(getattr(lived, field)[known]) for name, field in DURATIONS.items()}
    request = day.windows.request
    context = {
        "service": rows_of(day.windows, day.counted, request.service)[known],
        "node": rows_of(day.windows, day.counted, day.windows.node)[known],
    }
    return Sample(continuous, {"answer": lived.answer[known], **context})


def answers_trio(
    held: Sequence[Day], lived: Sequence[Lived], partners: Sequence[Day], *, min_rows: int
) -> Trio:
    """The held-out days' answers, the twin's, and those of the partner days.

    A request whose outcome the log or the twin does not know is left out of both.

    Raises:
        ConfigError: Fewer than `min_rows` requests have a known outcome.
    """
    real, generated, other = [], [], []
    blocks = 1 if len(held) >= MIN_DAYS else BLOCKS_PER_DAY
    for index, (day, twin, partner) in enumerate(zip(held, lived, partners, strict=True)):
        both = day.logged.known & twin.known
        unit = index * blocks + consecutive(int(both.sum()), blocks)
        real.append(Units(table_of(day, day.logged, both), unit))
        generated.append(Units(table_of(day, twin, both), unit))
        alike = partner.logged.known
        unit = index * blocks + consecutive(int(alike.sum()), blocks)
        other.append(Units(table_of(partner, partner.logged, alike), unit))
    num_rows = sum(len(part.unit) for part in real)
    if num_rows < min_rows:
        raise ConfigError(
            "too few requests with a known decision and outcome to certify anything",
            where=f"{num_rows} on {len(held)} held-out day(s) from {held[0].day}",
            allowed=f"{min_rows} or more",
            advice="name more days (--days), or look at the capability matrix of `schedtwin check`",
        )
    return Trio(_together(real), _together(generated), _together(other), len(held) * blocks)


def answer_lines(trio: Trio, config: CertifyConfig) -> list[Line]:
    """All lines about outcomes; what the log shows one kind of only is not applicable."""
    kinds = {name for part in trio[:2] for name in np.unique(part.sample.categorical["answer"])}
    columns = COLUMNS if len(kinds) > 1 else COLUMNS[:-1]
    lines = two_sample_lines(SECTION, trio, columns, config)
    if len(kinds) == 1:
        lines.append(
            not_applicable(SECTION, "KL of answer", f"all requests of these days end as {kinds.pop()}")
        )
    return lines


def distribution_charts(trio: Trio) -> tuple[Chart, ...]:
    """Distribution functions of the durations: log, twin, another day."""
    charts = []
    for name in DURATIONS:
        curves = []
        for label, part in (
            ("held-out days", trio.real),
            ("twin", trio.generated),
            ("another real day", trio.other),
        ):
            column = part.sample.continuous[name]
            column = np.sort(column[np.isfinite(column)])
            if len(column) >= 2:
                shares = np.linspace(0.0, 1.0, 101)
                curves.append(Curve(label, tuple(np.expm1(np.quantile(column, shares))), tuple(shares)))
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


def offload_lines(
    held: Sequence[Day],
    lived: Sequence[Lived],
    partners: Sequence[Day],
    encoding: Encoding,
    config: CertifyConfig,
) -> tuple[list[Line], tuple[Chart, ...]]:
    """The share of started requests that ran away from home, over the 12 parts of the day (paper 000, figure 4)."""
    if len(encoding.cluster.sites) < 2:
        return [not_applicable(OFFLOAD, "offload ratio over the day", "there is only one site")], ()
    tables = _offload_tables(held, lived, partners, encoding)
    units, limits, intervals = (
        len(held) * PARTS_OF_DAY * BLOCKS_PER_PART,
        config.thresholds,
        config.intervals(),
    )

    def curves(which: str, weights: np.ndarray) -> np.ndarray:
        away, all_of = tables[which]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.einsum("ru,up->rp", weights, away) / np.einsum("ru,up->rp", weights, all_of)
        return np.asarray(ratio)

    def error(which: str) -> Statistic:
        return lambda weights: _nan_mean(np.abs(curves(which, weights) - curves("real", weights)))

    def correlation(which: str) -> Statistic:
        return lambda weights: _correlation(curves(which, weights), curves("real", weights))

    lines = [
        against_floor(OFFLOAD, "mean absolute error of the offload ratio", "share", error("twin"), error("other"),
                      units, limits.offload_error, intervals),
        against_limit(OFFLOAD, "correlation of the offload ratio", "1", correlation("twin"), units,
                      limits.offload_correlation, intervals, higher_is_better=True, floor=correlation("other")),
    ]  # fmt: skip
    hours = tuple(24.0 / PARTS_OF_DAY * (np.arange(PARTS_OF_DAY) + 0.5))
    once = np.ones((1, units))
    chart = Chart(
        "Offload ratio over the day", "hour of the day", "share run away from home",
        tuple(Curve(label, hours, tuple(map(float, curves(which, once)[0])))
              for label, which in (("held-out days", "real"), ("twin", "twin"), ("another real day", "other"))),
        "Paper 000, figure 4. The decisions are the logged ones; the twin decides who is refused or dropped.",
    )  # fmt: skip
    return lines, (chart,)


def _offload_tables(
    held: Sequence[Day], lived: Sequence[Lived], partners: Sequence[Day], encoding: Encoding
) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Of real, twin and other: [units, parts] started requests away from home, and all started ones."""
    site_of_node = np.asarray(encoding.cluster.site_of_node)
    units = len(held) * PARTS_OF_DAY * BLOCKS_PER_PART
    tables = {
        name: (np.zeros((units, PARTS_OF_DAY)), np.zeros((units, PARTS_OF_DAY)))
        for name in ("real", "twin", "other")
    }
    for index, (day, twin, partner) in enumerate(zip(held, lived, partners, strict=True)):
        for name, of, told in (
            ("real", day, day.logged),
            ("twin", day, twin),
            ("other", partner, partner.logged),
        ):
            request = of.windows.request
            part, block = _parts(rows_of(of.windows, of.counted, request.day_fraction))
            node = rows_of(of.windows, of.counted, of.windows.node)
            off = site_of_node[node] != rows_of(of.windows, of.counted, request.site)
            unit = (index * PARTS_OF_DAY + part) * BLOCKS_PER_PART + block
            known = told.started & (day.logged.known & twin.known if name != "other" else told.known)
            np.add.at(tables[name][0], (unit[known], part[known]), off[known])
            np.add.at(tables[name][1], (unit[known], part[known]), 1.0)
    return tables


def _parts(day_fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of the day of every row, and the block within the part."""
    fine = np.minimum(
        (day_fraction * PARTS_OF_DAY * BLOCKS_PER_PART).astype(int), PARTS_OF_DAY * BLOCKS_PER_PART - 1
    )
    return fine // BLOCKS_PER_PART, fine % BLOCKS_PER_PART


def _nan_mean(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1))


def _correlation(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    known = np.isfinite(one) & np.isfinite(two)
    parts = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for values in (one, two):
            mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True)
            parts.append(np.where(known, values - mean, 0.0))
        product = (parts[0] * parts[1]).sum(axis=1)
        return np.asarray(product / np.sqrt((parts[0] ** 2).sum(axis=1) * (parts[1] ** 2).sum(axis=1)))


def consecutive(num_rows: int, num_blocks: int) -> np.ndarray:
    """[rows] which of so many blocks of equal size a row lies in."""
    return np.arange(num_rows) * num_blocks // max(num_rows, 1)


def _together(parts: Sequence[Units]) -> Units:
    first = parts[0].sample
    sample = Sample(
        {name: np.concatenate([part.sample.continuous[name] for part in parts]) for name in first.continuous},
        {
            name: np.concatenate([part.sample.categorical[name] for part in parts])
            for name in first.categorical
        },
    )
    return Units(sample, np.concatenate([part.unit for part in parts]))

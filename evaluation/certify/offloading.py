"""The share of started requests that ran away from home, over the 12 parts of the day (Xiong et al., figure 4)."""

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.certify.arrival_statistics import PARTS_OF_DAY
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, against_limit, not_applicable
from evaluation.certify.logged_days import DayOutcomes, HeldOutDay, known_in_log, request_column
from evaluation.certify.measures import mean_of_known
from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.report import Chart, Curve
from twin.placement.encoding import Encoding

SECTION = "offload over the day"
BLOCKS_PER_PART = 4
MIN_PARTS = 6
"""Parts of the day with requests that a correlation takes: two points are always on a line."""


def offload_lines(
    held: Sequence[HeldOutDay],
    simulated: Sequence[DayOutcomes],
    partners: Sequence[HeldOutDay],
    encoding: Encoding,
    config: CertifyConfig,
) -> tuple[list[Line], tuple[Chart, ...]]:
    """The share of started requests that ran away from home, over the 12 parts of the day (Xiong et al., figure 4)."""
    if len(encoding.cluster.sites) < 2:
        return [not_applicable(SECTION, "offload ratio over the day", "there is only one site")], ()
    tables = _offload_tables(held, simulated, partners, encoding)
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
        return lambda weights: mean_of_known(np.abs(curves(which, weights) - curves("real", weights)))

    def correlation(which: str) -> Statistic:
        return lambda weights: _correlation(curves(which, weights), curves("real", weights))

    once, name = np.ones((1, units)), "correlation of the offload ratio"
    num_parts = int(np.isfinite(curves("twin", once) + curves("real", once)).sum())
    lines = [
        against_floor(SECTION, "mean absolute error of the offload ratio", "share", error("twin"), error("other"),
                      units, limits.offload_error, intervals),
        not_applicable(SECTION, name, f"{num_parts} parts of the day hold requests, fewer than {MIN_PARTS}")
        if num_parts < MIN_PARTS else
        against_limit(SECTION, name, "1", correlation("twin"), units, limits.offload_correlation, intervals,
                      higher_is_better=True, floor=correlation("other")),
    ]  # fmt: skip
    hours = tuple(24.0 / PARTS_OF_DAY * (np.arange(PARTS_OF_DAY) + 0.5))
    chart = Chart(
        "Offload ratio over the day",
        "hour of the day",
        "share run away from home",
        tuple(
            Curve(label, hours, tuple(map(float, curves(which, once)[0])))
            for label, which in (("held-out days", "real"), ("twin", "twin"), ("another real day", "other"))
        ),
        "Xiong et al., figure 4. In the twin, a clone of the behaviour decides.",
    )
    return lines, (chart,)


def _offload_tables(
    held: Sequence[HeldOutDay],
    simulated: Sequence[DayOutcomes],
    partners: Sequence[HeldOutDay],
    encoding: Encoding,
) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Of real, twin and other: [units, parts] started requests away from home, and all started ones."""
    site_of_node = np.asarray(encoding.cluster.site_of_node)
    units = len(held) * PARTS_OF_DAY * BLOCKS_PER_PART
    tables = {
        name: (np.zeros((units, PARTS_OF_DAY)), np.zeros((units, PARTS_OF_DAY)))
        for name in ("real", "twin", "other")
    }
    for index, (day, twin, partner) in enumerate(zip(held, simulated, partners, strict=True)):
        for name, of, outcomes in (
            ("real", day, day.logged),
            ("twin", day, twin),
            ("other", partner, partner.logged),
        ):
            part, block = _parts(request_column(of, outcomes, "day_fraction"))
            off = site_of_node[outcomes.node] != request_column(of, outcomes, "site")
            unit = (index * PARTS_OF_DAY + part) * BLOCKS_PER_PART + block
            known = outcomes.started & outcomes.known & known_in_log(of, outcomes)
            np.add.at(tables[name][0], (unit[known], part[known]), off[known])
            np.add.at(tables[name][1], (unit[known], part[known]), 1.0)
    return tables


def _parts(day_fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of the day of every row, and the block within the part."""
    fine = np.minimum(
        (day_fraction * PARTS_OF_DAY * BLOCKS_PER_PART).astype(int), PARTS_OF_DAY * BLOCKS_PER_PART - 1
    )
    return fine // BLOCKS_PER_PART, fine % BLOCKS_PER_PART


def _correlation(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    known = np.isfinite(one) & np.isfinite(two)
    parts = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for values in (one, two):
            mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True)
            parts.append(np.where(known, values - mean, 0.0))
        product = (parts[0] * parts[1]).sum(axis=1)
        return np.asarray(product / np.sqrt((parts[0] ** 2).sum(axis=1) * (parts[1] ** 2).sum(axis=1)))

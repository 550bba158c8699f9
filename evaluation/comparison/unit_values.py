"""Values of a judge by resampling unit, and a comparison with such a judge added.

A judge of the user's gives no decisions but finished values, one for each unit (a day, an episode). Its value of a
policy is their weighted mean; intervals and paired differences are drawn over the units as for all other judges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig, summarise, weights_of
from evaluation.comparison.comparison import Comparison, drawn_over_seeds, paired
from evaluation.comparison.entries import Cell, Difference, JudgeFacts
from evaluation.comparison.metrics.metric import range_of


class UnitValues(NamedTuple):
    """A judge's values of one policy on the days of one shift.

    Attributes:
        values: Name of a metric of the comparison -> [units] its value in every unit, finite. Units are the same, in
            the same order, for all policies: differences are paired by unit.
        weight: [units] how much each unit counts in the mean, such as its number of requests; None: all alike.
    """

    values: Mapping[str, np.ndarray]
    weight: np.ndarray | None = None


Judged = Mapping[tuple[int, str], Sequence[UnitValues]]
"""(shift in days, policy) -> the values of each seed."""


def with_judge(
    comparison: Comparison, judge: JudgeFacts, found: Judged, config: IntervalConfig
) -> Comparison:
    """The comparison with one more judge: cells, paired differences to its references, and the judge's facts.

    Args:
        comparison: The comparison.
        judge: Name and description.
        found: Its values, equally many units for all policies of a shift.
        config: Of the bootstrap.
    """
    cells: list[Cell] = []
    differences: list[Difference] = []
    references = comparison.references()
    for shift in dict.fromkeys(shift for shift, _ in found):
        here = {policy: seeds for (one, policy), seeds in found.items() if one == shift}
        num_units = len(next(iter(next(iter(here.values()))[0].values.values())))
        weights = weights_of(num_units, config)
        holding = {policy: _num_holding(seeds, num_units) for policy, seeds in here.items()}
        for metric in comparison.metrics:
            values = {
                policy: drawn_over_seeds([_means(weights, seed, metric.name) for seed in seeds], config)
                for policy, seeds in here.items()
                if all(metric.name in seed.values for seed in seeds)
            }
            for policy, value in values.items():
                found_here = summarise(value, num_units, config, range_of(metric), holding[policy])
                cells.append(Cell(judge.name, shift, policy, metric.name, found_here))
            differences += paired(values, judge.name, shift, metric, references, num_units, config, holding)
    return replace(
        comparison,
        unit_kind=f"{comparison.unit_kind} / units of {judge.name}",
        judges=(*comparison.judges, judge),
        cells=(*comparison.cells, *cells),
        differences=(*comparison.differences, *differences),
    )


def _num_holding(seeds: Sequence[UnitValues], num_units: int) -> int:
    """Units of a weight above zero: the others are no evidence, and would make an interval too narrow."""
    if any(seed.weight is None for seed in seeds):
        return num_units
    return int(np.any([np.asarray(seed.weight) > 0.0 for seed in seeds], axis=0).sum())


def _means(weights: np.ndarray, seed: UnitValues, metric: str) -> np.ndarray:
    """[draws] weighted mean over units; NaN where a draw has no unit that counts."""
    value = np.asarray(seed.values[metric], np.float64)
    share = np.ones(len(value)) if seed.weight is None else np.asarray(seed.weight, np.float64)
    above, below = weights @ (share * value), weights @ share
    return np.divide(above, below, out=np.full(len(weights), np.nan), where=below > 0.0)

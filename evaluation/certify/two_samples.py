"""The lines that compare a generated sample with a real one: columns, pairs, classifier, kernel, distributions.

They apply to answers and populations: both are tables of mixed columns, cut into resampling units.
"""

from typing import NamedTuple

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, combine, not_applicable
from evaluation.certify.resampled import (
    Units,
    classifier_auc,
    column_kls,
    distribution_distances,
    kernel_distance,
    pair_kls,
    thinned,
)
from evaluation.certify.samples import Coding, Sample
from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.report import Chart, Curve

MIN_KNOWN = 50
"""Smallest number of known values of a column that is compared."""
KERNEL_ROWS = 1000
PAIR_BINS = 8


DISTANCES = ("Kolmogorov-Smirnov distance", "Wasserstein distance")


class Trio(NamedTuple):
    """The compared samples: a real one, the twin's, and the real one of another day; with the same units."""

    real: Units
    generated: Units
    other: Units
    num_units: int


def keep(trio: Trio, names: tuple[str, ...]) -> Trio:
    """The trio with some columns only."""

    def some(part: Units) -> Units:
        continuous = {name: one for name, one in part.sample.continuous.items() if name in names}
        categorical = {name: one for name, one in part.sample.categorical.items() if name in names}
        return Units(Sample(continuous, categorical), part.unit)

    return Trio(some(trio.real), some(trio.generated), some(trio.other), trio.num_units)


def two_sample_lines(section: str, trio: Trio, columns: tuple[str, ...], config: CertifyConfig) -> list[Line]:
    """All lines of two samples.

    Args:
        section: Name of the section.
        trio: Samples of equal columns; columns beyond `columns` are context, used by pairs, classifier and kernel only.
        columns: The columns that are compared one by one.
        config: Configuration of the certificate.

    Returns:
        The lines; a column with too few known values is not applicable and left out of the others.
    """
    sparse = {name: known for name in columns if (known := _num_known(trio, name)) < MIN_KNOWN}
    lines = [
        not_applicable(section, name, f"{known} values are known on these days, fewer than {MIN_KNOWN}")
        for name, known in sparse.items()
    ]
    rest = tuple(name for name in columns if name not in sparse)
    if not rest:
        return lines
    trio = keep(trio, tuple(name for name in trio.real.sample.names if name not in sparse))
    lines += column_lines(section, keep(trio, rest), config)
    lines += distribution_lines(section, keep(trio, rest), config)
    return [*lines, *_joint_lines(section, trio, rest, config)]


def column_lines(section: str, trio: Trio, config: CertifyConfig) -> list[Line]:
    """KL of every column; not applicable to a column with a single value everywhere, which could only pass."""
    coding, intervals = Coding(trio.real.sample), config.intervals()
    measured = column_kls(coding, trio.real, trio.generated, trio.num_units)
    floor = column_kls(coding, trio.real, trio.other, trio.num_units)
    return [
        not_applicable(section, f"KL of {name}", "log and twin hold one value only")
        if _constant(trio, name)
        else against_floor(
            section,
            f"KL of {name}",
            "nats",
            measured[name],
            floor[name],
            trio.num_units,
            config.thresholds.column_kl,
            intervals,
        )
        for name in coding.names
    ]


def distribution_lines(section: str, trio: Trio, config: CertifyConfig) -> list[Line]:
    """Distances of the distribution functions of every continuous column that holds more than one value."""
    lines, intervals, limits = [], config.intervals(), config.thresholds
    for name in trio.real.sample.continuous:
        if _constant(trio, name):
            continue
        if not all(np.isfinite(part.sample.continuous[name]).any() for part in trio[:3]):
            reason = f"{name} is unknown of every request of the log, or of the twin"
            lines += [not_applicable(section, f"{what} of {name}", reason) for what in DISTANCES]
            continue
        measured, floor = (
            distribution_distances(
                trio.real.sample.continuous[name],
                trio.real.unit,
                part.sample.continuous[name],
                part.unit,
                trio.num_units,
            )
            for part in (trio.generated, trio.other)
        )
        for what, unit, limit, one, two in zip(
            DISTANCES, ("share", "deviations"), (limits.kolmogorov_smirnov, limits.wasserstein), measured, floor,
            strict=True,
        ):  # fmt: skip
            lines.append(
                against_floor(section, f"{what} of {name}", unit, one, two, trio.num_units, limit, intervals)
            )
    return lines


def _joint_lines(section: str, trio: Trio, columns: tuple[str, ...], config: CertifyConfig) -> list[Line]:
    intervals, limits, units = config.intervals(), config.thresholds, trio.num_units
    lines = []
    pairs = pair_statistics(trio, columns)
    if pairs:
        measured, floor = (combine(list(part), _mean) for part in zip(*pairs.values(), strict=True))
        lines.append(
            against_floor(
                section,
                "mean KL of pairs of columns",
                "nats",
                measured,
                floor,
                units,
                limits.pair_kl,
                intervals,
            )
        )
    small = _thin(trio, config.max_rows, config.seed)
    coding = Coding(small.real.sample)
    area, noise = (
        classifier_auc(coding, small.real, part, seed=config.seed) for part in (small.generated, small.other)
    )
    lines.append(
        against_floor(
            section,
            "two-sample classifier",
            "area under the curve",
            area,
            noise,
            units,
            limits.auc,
            intervals,
        )
    )
    tiny = _thin(trio, KERNEL_ROWS, config.seed)
    distance, noise = (
        kernel_distance(Coding(tiny.real.sample), tiny.real, part, units)
        for part in (tiny.generated, tiny.other)
    )
    lines.append(
        against_floor(
            section, "kernel distance (squared MMD)", "1", distance, noise, units, limits.mmd, intervals
        )
    )
    return lines


def pair_statistics(
    trio: Trio, columns: tuple[str, ...]
) -> dict[tuple[str, str], tuple[Statistic, Statistic]]:
    """KL of every pair of columns, of the twin and of the floor; pairs of context alone are left out."""
    coarse = Coding(trio.real.sample, PAIR_BINS)
    measured, floor = (
        pair_kls(coarse, trio.real, part, trio.num_units) for part in (trio.generated, trio.other)
    )
    return {pair: (measured[pair], floor[pair]) for pair in measured if set(pair) & set(columns)}


def pairs_chart(trio: Trio, columns: tuple[str, ...], other: str = "another real day") -> Chart:
    """KL of every pair of columns with its floor, the largest excess first; the note names the pairs."""
    once = np.ones((1, trio.num_units))
    found = [
        (f"{one} and {two}", float(measured(once)[0]), float(floor(once)[0]))
        for (one, two), (measured, floor) in pair_statistics(trio, columns).items()
    ]
    found.sort(key=lambda item: item[2] - item[1])
    place = tuple(float(index + 1) for index in range(len(found)))
    names = "; ".join(f"{index + 1} {name}" for index, (name, _, _) in enumerate(found))
    return Chart(
        "KL of every pair of columns",
        "pair, the largest excess first",
        "KL (nats)",
        (
            Curve("twin", place, tuple(item[1] for item in found)),
            Curve(other, place, tuple(item[2] for item in found)),
        ),
        names,
    )


def _thin(trio: Trio, max_rows: int, seed: int) -> Trio:
    real, generated, other = (
        thinned(part, max_rows, seed) for part in (trio.real, trio.generated, trio.other)
    )
    return Trio(real, generated, other, trio.num_units)


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.mean(axis=0))


def _num_known(trio: Trio, name: str) -> int:
    counts = []
    for part in trio[:3]:
        column = part.sample.continuous.get(name)
        counts.append(len(part.unit) if column is None else int(np.isfinite(column).sum()))
    return min(counts[:1] + counts[2:])


def _constant(trio: Trio, name: str) -> bool:
    """Whether all samples hold one value only."""
    seen = []
    for part in trio[:3]:
        column = part.sample.continuous.get(name)
        seen.append(part.sample.categorical[name] if column is None else column[np.isfinite(column)])
    return len(np.unique(np.concatenate(seen))) == 1

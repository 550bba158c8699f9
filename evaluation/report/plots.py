"""Plots as inline SVG that follows the page: text and axes take the page's colour, so light and dark both
read well.

Colours follow Okabe and Ito, for colour-blind readers; every series has its own marker too. Labels come from
logs, so none of them is ever read as mathematics or markup.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from evaluation.comparison import Comparison
from evaluation.formatting import number, shift_label
from evaluation.report.content import Chart

COLOURS = ("#2A8FD0", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#8C8C8C", "#56B4E9")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
FILLS = ("full", "none", "left")
MOST_TOGETHER = 10
"""Policies in one picture; of more, each picture shows so many as there are colours."""
LOGARITHMIC_FROM = 30.0
"""Largest value over the lower quartile of all from which on an axis is logarithmic."""
_INK, _GRID = "#010203", "#a0a1a2"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class _Series:
    """Points with intervals: x positions, values, and bounds where there are any."""

    name: str
    order: int  # of the policy in every picture that shows it, for the same colour
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


def plotted_together(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    """Which policies one picture shows, by what its title adds: all, or where those are too many to be told apart
    what learned and what is best besides, then the others."""
    names = [policy.name for policy in comparison.policies]
    if len(names) <= MOST_TOGETHER:
        return {"": tuple(names)}
    lower = next(item.better for item in comparison.metrics if item.name == comparison.main_metric) == "lower"

    def rank(name: str) -> float:
        found = [
            comparison.cell(comparison.judges[0].name, shift.shift_days, name, comparison.main_metric)
            for shift in comparison.shifts
        ]
        values = [one.value for one in found if one is not None and one.value is not None]
        return sum(values) / len(values) * (1.0 if lower else -1.0) if values else math.inf

    learned = [policy.name for policy in comparison.policies if policy.kind in ("trained", "imitation")]
    others = sorted((name for name in names if name not in learned), key=rank)
    sorted_names, size = [*learned, *others], len(COLOURS)
    return {
        f", policies {first + 1} to {min(first + size, len(names))} of {len(names)}, "
        + ("learned and best" if first == 0 else "the others"): tuple(sorted_names[first : first + size])
        for first in range(0, len(names), size)
    }


def shift_plot(
    comparison: Comparison, judge: str, metric: str, reference: str | None, policies: Sequence[str]
) -> str | None:
    """SVG of a metric against the shift, or of its improvement over a reference; None where there is nothing
    to show.

    Args:
        comparison: The numbers.
        judge: Whose.
        metric: Name of the metric.
        reference: Policy to improve on; None shows the values themselves.
        policies: Names of those to show.

    Returns:
        The SVG element. Improvements are positive where the policy is better.
    """
    facts = next(item for item in comparison.metrics if item.name == metric)
    sign = -1.0 if reference is not None and facts.better == "lower" else 1.0
    shifts = [shift.shift_days for shift in comparison.shifts]
    series = [
        found
        for order, name in enumerate(policies)
        if (found := _series(comparison, judge, name, order, metric, reference, sign)).x
    ]
    if not series:
        return None
    label = f"{metric} [{facts.unit}]"
    if reference is not None:
        label = f"improvement in\n{label}\nover {reference}"
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{judge}/{metric}/{reference}/{policies[0]}"}):
        figure, axes = _figure(width=8.4, height=3.9)
        _draw_series(axes, series, num_policies=len(series))
        _stretch(axes, series)
        if reference is not None:
            axes.axhline(0.0, color=_INK, linewidth=1.0)
        axes.margins(y=0.08)
        _mark_empty(axes, series, len(shifts))
        axes.set_xticks(range(len(shifts)), [shift_label(shift) for shift in shifts])
        axes.set_xlim(-0.5, len(shifts) - 0.5)
        axes.set_xlabel("time between the training days and the test days")
        axes.set_ylabel(label)
        _legend(axes, len(series))
        return _svg(figure)


def _stretch(axes: Axes, series: Sequence[_Series]) -> None:
    """A logarithmic axis, linear about zero, where some values are so large that the others could not be told apart."""
    sizes = np.abs([value for found in series for value in found.y])
    usual = float(np.quantile(sizes, 0.25))
    if usual > 0.0 and np.max(sizes) > LOGARITHMIC_FROM * usual:
        axes.set_yscale("symlog", linthresh=10.0 ** math.floor(math.log10(usual)))
        axes.yaxis.set_major_formatter(lambda value, _: number(value))


def chart_plot(chart: Chart) -> str:
    """SVG of a chart of curves."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{chart.title}/{chart.y_label}"}):
        figure, axes = _figure(width=5.6, height=3.7)
        for index, curve in enumerate(chart.curves):
            colour = COLOURS[index % len(COLOURS)]
            marker = MARKERS[index % len(MARKERS)] if len(curve.x) <= 30 else None
            axes.plot(curve.x, curve.y, color=colour, marker=marker, markersize=4.5, linewidth=1.6)
            axes.lines[-1].set_label(curve.name)
        if chart.diagonal:
            axes.axline((0.0, 0.0), slope=1.0, color=_INK, linewidth=1.0, linestyle="--")
        if chart.logarithmic:
            axes.set_xscale("symlog", linthresh=1.0)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        _legend(axes, len(chart.curves))
        return _svg(figure)


def _series(
    comparison: Comparison,
    judge: str,
    policy: str,
    order: int,
    metric: str,
    reference: str | None,
    sign: float,
) -> _Series:
    series = _Series(policy, order, [], [], [], [])
    for position, shift in enumerate(comparison.shifts):
        if reference is None:
            estimate = comparison.cell(judge, shift.shift_days, policy, metric)
        else:
            found = comparison.difference(judge, shift.shift_days, policy, reference, metric)
            estimate = None if found is None else found.estimate
        if estimate is None or estimate.value is None:
            continue
        bounds = [estimate.value if bound is None else bound for bound in (estimate.low, estimate.high)]
        low, high = sorted(sign * bound for bound in bounds)
        series.x.append(float(position))
        series.y.append(sign * estimate.value)
        series.low.append(low)
        series.high.append(high)
    return series


def series_style(order: int) -> dict[str, Any]:
    """Colour and marker of a series, by its place: filled markers first, then the same ones open, then half filled."""
    turn, place = divmod(order, len(COLOURS))
    return {"color": COLOURS[place], "marker": MARKERS[place], "fillstyle": FILLS[turn % len(FILLS)]}


def _draw_series(axes: Axes, series: Sequence[_Series], num_policies: int) -> None:
    for index, found in enumerate(series):
        offset = (index - (num_policies - 1) / 2) * min(0.11, 0.7 / num_policies)
        below = [max(value - low, 0.0) for value, low in zip(found.y, found.low, strict=True)]
        above = [max(high - value, 0.0) for value, high in zip(found.y, found.high, strict=True)]
        container = axes.errorbar(
            [position + offset for position in found.x],
            found.y,
            yerr=[below, above],
            **series_style(found.order),
            markersize=6,
            linewidth=0.0,
            elinewidth=1.8,
            capsize=3,
        )
        container.set_label(found.name)


def _mark_empty(axes: Axes, series: Sequence[_Series], num_shifts: int) -> None:
    """Says so where no policy has a value, lest a gap be read as zero."""
    for position in range(num_shifts):
        if not any(float(position) in found.x for found in series):
            across = axes.get_xaxis_transform()
            axes.text(position, 0.5, "not judged", ha="center", fontsize=10, transform=across)


def _figure(*, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return figure, axes


def _legend(axes: Axes, num_series: int) -> None:
    if num_series > 0:
        columns = min(num_series, 4)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=10, handlelength=1.4
        )


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return text.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")

"""The figure of a report: one panel for each judge, the main metric against the shift, main policies in colour."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import escape

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import shift_label
from evaluation.comparison.report.plots import AXES_INK, OTHERS, series_style, styled_figure, svg_of
from evaluation.comparison.report.roles import Strong, strong_policies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 5.3, 3.6
"""Of a panel, in inches."""
AXES = (0.135, 0.1, 0.44, 0.79)
"""Left, bottom, width and height of the plotted area; the names are to its right."""
NAME_GAP = 0.062
"""Least distance of two names, as a share of the height of the plotted area: their font is smaller."""
LONGEST_NAME = 24
"""Letters of a name beside a line; longer names are cut, and given in full in the tables."""
MOST_LABELS = 4
"""Largest number of shifts with full labels below a panel; with more, labels are abbreviated, "30d"."""
LOGARITHMIC_FROM = 30.0
"""Largest value over the lower quartile of all from which on an axis is logarithmic."""
HEAD, GAP = 60.0, 12.0
"""Space above the panels of the figure's file, and between them, in points."""
_FILE_STYLE = (
    ".figure{color:#1b1f24;--grid:#d5dbe1;--others:#9aa3ac}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){.figure{color:#e8ebee;--grid:#3a444e;--others:#6d7883}.page{fill:#14181c}}"
    ".head{font:600 15px sans-serif;fill:currentColor}.note{font:12px sans-serif;fill:currentColor}"
)


@dataclass(frozen=True)
class _Line:
    """Values of a policy by a judge at every shift, [num_shifts]; NaN where it was not evaluated."""

    policy: str
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


def panels(comparison: Comparison, over: str | None = None) -> dict[str, str]:
    """The panels of all judges with values, on one scale.

    Args:
        comparison: The comparison.
        over: Policy that differences are taken to; None shows the main metric itself.

    Returns:
        Judge -> SVG element. Improvements are positive where the policy is better.
    """
    lines = {judge.name: _lines(comparison, judge.name, over) for judge in comparison.judges}
    shown = {judge: found for judge, found in lines.items() if found}
    strong = {one.policy: one for one in strong_policies(comparison)}
    everywhere = [line for found in shown.values() for line in found]
    return {
        judge: _panel(comparison, judge, found, everywhere, strong, over) for judge, found in shown.items()
    }


def figure_file(comparison: Comparison) -> str:
    """All panels as one SVG file with light and dark colour schemes; empty where nothing was measured."""
    parts = [*panels(comparison).values()]
    if not parts:
        return ""
    across = columns(len(parts))
    wide, tall = 72.0 * WIDTH, 72.0 * HEIGHT
    width = across * wide + (across + 1) * GAP
    height = HEAD + -(-len(parts) // across) * (tall + GAP)
    placed = [
        re.sub(
            r"<svg\b[^>]*>",
            f'<svg x="{GAP + index % across * (wide + GAP):.0f}" y="{HEAD + index // across * (tall + GAP):.0f}" '
            f'width="{wide:.0f}" height="{tall:.0f}" viewBox="0 0 {wide:.1f} {tall:.1f}">',
            part,
            count=1,
        )
        for index, part in enumerate(parts)
    ]
    head, notes = figure_title(comparison), figure_note(comparison)
    lines = [
        f'<text class="note" x="{GAP}" y="{37 + 16 * place}">{escape(note)}</text>'
        for place, note in enumerate(notes)
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="figure" role="img" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"><style>{_FILE_STYLE}</style>'
        f'<title>{escape(head)}</title><rect class="page" width="100%" height="100%"/>'
        f'<text class="head" x="{GAP}" y="20">{escape(head)}</text>'
        f"{''.join(lines)}{''.join(placed)}</svg>\n"
    )


def columns(num_panels: int) -> int:
    """Number of panels in a row, in a wide window."""
    return num_panels if num_panels < 4 else 2 if num_panels == 4 else 3


def figure_title(comparison: Comparison) -> str:
    """Title of the figure: metric, unit and better direction."""
    facts = next(item for item in comparison.metrics if item.name == comparison.main_metric)
    better = "" if facts.better == "none" else f", {facts.better} is better"
    return f"{facts.name} [{facts.unit}]{better}"


def figure_note(comparison: Comparison) -> list[str]:
    """Explanation of the figure, as sentences."""
    num_others = len(comparison.policies) - len(strong_policies(comparison))
    others = "the other policy" if num_others == 1 else f"the other {num_others} policies"
    grey = f"; grey: {others}" if num_others else ""
    return [
        "Across: time between training and test days.",
        f"Bars: {100 * comparison.level:.0f} % intervals{grey}.",
    ]


def _lines(comparison: Comparison, judge: str, over: str | None) -> list[_Line]:
    """Lines of all policies that the judge has values of."""
    facts = next(item for item in comparison.metrics if item.name == comparison.main_metric)
    sign = -1.0 if over is not None and facts.better == "lower" else 1.0
    found = []
    for policy in comparison.policies:
        rows = []
        for shift in comparison.shifts:
            estimate = comparison.cell(judge, shift.shift_days, policy.name, facts.name)
            if over is not None:
                paired = comparison.difference(judge, shift.shift_days, policy.name, over, facts.name)
                estimate = None if paired is None else paired.estimate
            if estimate is None or estimate.value is None:
                rows.append((math.nan, math.nan, math.nan))
                continue
            bounds = [estimate.value if bound is None else bound for bound in (estimate.low, estimate.high)]
            low, high = sorted(sign * bound for bound in bounds)
            rows.append((sign * estimate.value, low, high))
        lines = np.array(rows, np.float64).T
        if np.isfinite(lines[0]).any():
            found.append(_Line(policy.name, *lines))
    return found


def _panel(
    comparison: Comparison,
    judge: str,
    lines: Sequence[_Line],
    everywhere: Sequence[_Line],
    strong: dict[str, Strong],
    over: str | None,
) -> str:
    salt = f"{judge}/{comparison.main_metric}/{over}"
    with styled_figure(salt, width=WIDTH, height=HEIGHT, style={"font.size": 10}) as figure:
        axes = figure.add_axes(AXES)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        _scale(axes, everywhere, strong)
        num_shifts = len(comparison.shifts)
        axes.set_xlim(-0.3, num_shifts - 0.7)
        label = shift_label if num_shifts <= MOST_LABELS else "{}d".format
        axes.set_xticks(range(num_shifts), [label(one.shift_days) for one in comparison.shifts])
        axes.set_title(f"judged by {judge}", loc="left", x=-0.12, fontsize=12, fontweight="bold")
        if over is not None:
            axes.axhline(0.0, color=AXES_INK, linewidth=1.0)
        for line in lines:
            if line.policy not in strong:
                axes.plot(line.y, color=OTHERS, linewidth=0.8, marker=".", markersize=3.0, zorder=1.5)
        named = sorted(
            (line for line in lines if line.policy in strong), key=lambda line: strong[line.policy].style
        )
        for place, line in enumerate(named):
            _draw_strong(axes, line, strong[line.policy].style, 0.045 * (place - (len(named) - 1) / 2))
        _mark_empty(axes, lines, num_shifts)
        _name(axes, named, strong)
        return svg_of(figure)


def _scale(axes: "Axes", lines: Sequence[_Line], strong: dict[str, Strong]) -> None:
    """One scale for all panels: logarithmic where the range of values is large, and linear about zero where some of
    them are not positive, at least as far as intervals reach."""
    shown = [line.y for line in lines]
    shown += [bound for line in lines if line.policy in strong for bound in (line.low, line.high)]
    low, high = float(np.nanmin(np.concatenate(shown))), float(np.nanmax(np.concatenate(shown)))
    values = np.concatenate([line.y for line in lines])
    sizes = np.abs(values[np.isfinite(values)])
    usual = float(np.quantile(sizes, 0.25))
    widths = np.concatenate([line.high - line.low for line in lines])
    if np.nanmin(values) <= 0.0 and np.isfinite(widths).any():
        usual = max(usual, 0.5 * float(np.nanmedian(widths)))
    if np.max(sizes) <= LOGARITHMIC_FROM * usual or usual == 0.0:
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)
        return
    if np.nanmin(values) > 0.0:
        axes.set_yscale("log", nonpositive="clip")
        low = max(low, float(np.nanmin(values)) / 10.0)  # a bound near zero would take up the whole axis
    else:
        axes.set_yscale("symlog", linthresh=10.0 ** math.floor(math.log10(usual)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.15g}".replace("-", "\N{MINUS SIGN}"))
    axes.set_ylim(low / 1.3 if low > 0.0 else 1.3 * low, 1.3 * high if high > 0.0 else high / 1.3)


def _draw_strong(axes: "Axes", line: _Line, style: int, offset: float) -> None:
    """Points with intervals, joined; `offset` keeps the bars of several policies apart."""
    x = np.arange(len(line.y)) + offset
    bars = np.maximum([line.y - line.low, line.high - line.y], 0.0)
    axes.errorbar(
        x, line.y, yerr=bars, **series_style(style), markersize=5.5, linewidth=1.8, elinewidth=1.3, zorder=3.0
    )


def _name(axes: "Axes", lines: Sequence[_Line], strong: dict[str, Strong]) -> None:
    """Names at the right end of the lines, moved apart where they would overlap."""
    if not lines:
        return
    ends = []
    for line in lines:
        last = int(np.flatnonzero(np.isfinite(line.y))[-1])
        shown = axes.transData.transform((last, float(line.y[last])))
        ends.append(axes.transAxes.inverted().transform(shown))
    heights = apart([float(y) for _, y in ends], NAME_GAP, 0.02, 0.98)
    for line, (x, y), height in zip(lines, ends, heights, strict=True):
        style = series_style(strong[line.policy].style)
        outside = {"transform": axes.transAxes, "clip_on": False, "color": style["color"]}
        axes.plot([x, 1.0, 1.035], [y, height, height], linewidth=0.8, linestyle=":", **outside)
        axes.plot([1.055], [height], **(style | outside), markersize=5.5)
        name = shortened(line.policy)
        axes.text(1.085, height, name, va="center_baseline", fontsize=10, transform=axes.transAxes)


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights in the same order, moved as little as possible (least squares) so that neighbours lie `gap` apart.

    Args:
        heights: Preferred heights of the names.
        gap: Smallest distance; reduced where the names do not fit otherwise.
        low, high: Bounds of the heights.
    """
    gap = min(gap, (high - low) / max(len(heights) - 1, 1))
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    blocks: list[tuple[float, int]] = []  # mean and size of names that touch, with the gaps taken out
    for place, index in enumerate(order):
        mean, size = heights[index] - gap * place, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (mean * size + before * count) / (size + count), size + count
        blocks.append((mean, size))
    free = [mean for mean, size in blocks for _ in range(size)]
    last = high - gap * (len(free) - 1)
    moved = [0.0] * len(free)
    for place, index in enumerate(order):
        moved[index] = min(max(free[place], low), last) + gap * place
    return moved


def shortened(name: str) -> str:
    """The name, cut to `LONGEST_NAME` letters."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


def _mark_empty(axes: "Axes", lines: Sequence[_Line], num_shifts: int) -> None:
    """Labels shifts without any value as "not judged", so that a gap is not read as zero."""
    for position in range(num_shifts):
        if not any(math.isfinite(line.y[position]) for line in lines):
            across = axes.get_xaxis_transform()
            axes.text(position, 0.5, "not judged", ha="center", fontsize=10, rotation=90, transform=across)

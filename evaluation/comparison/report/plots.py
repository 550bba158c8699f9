"""Plots as inline SVG in the colours of the page: text and axes use the page's colour, for light and dark schemes.

Colours are those of Okabe and Ito, for colour-blind readers; every series has its own marker too. Labels come from
logs, so they are never interpreted as mathematics or markup.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evaluation.comparison.report.content import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2A8FD0", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#8E6BD8", "#56B4E9")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
FILLS = ("full", "none", "left")
AXES_INK, OTHERS, _GRID = "#010203", "#b0b1b2", "#a0a1a2"
"""Placeholders for the page's own colours: of text and axes, of policies in the background, of grids."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": AXES_INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.edgecolor": AXES_INK,
    "axes.labelcolor": AXES_INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": AXES_INK,
    "ytick.color": AXES_INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


def chart_plot(chart: Chart) -> str:
    """SVG of a chart of curves."""
    with styled_figure(
        f"{chart.title}/{chart.y_label}", width=5.6, height=3.7, layout="constrained"
    ) as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        for index, curve in enumerate(chart.curves):
            colour = COLOURS[index % len(COLOURS)]
            marker = MARKERS[index % len(MARKERS)] if len(curve.x) <= 30 else None
            axes.plot(curve.x, curve.y, color=colour, marker=marker, markersize=4.5, linewidth=1.6)
            axes.lines[-1].set_label(curve.name)
        if chart.diagonal:
            axes.axline((0.0, 0.0), slope=1.0, color=AXES_INK, linewidth=1.0, linestyle="--")
        if chart.logarithmic:
            axes.set_xscale("symlog", linthresh=1.0)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        elif all(float(x).is_integer() for curve in chart.curves for x in curve.x):
            axes.locator_params(axis="x", integer=True)  # hours, decisions, pairs: none is a half
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        _legend(axes, len(chart.curves))
        return svg_of(figure)


def series_style(order: int) -> dict[str, Any]:
    """Colour and marker of a series, by its place: filled markers first, then the same ones open, then half filled."""
    turn, place = divmod(order, len(COLOURS))
    return {"color": COLOURS[place], "marker": MARKERS[place], "fillstyle": FILLS[turn % len(FILLS)]}


@contextmanager
def styled_figure(
    salt: str, *, width: float, height: float, layout: Any = None, style: dict[Any, Any] | None = None
) -> Iterator["Figure"]:
    """An empty figure of so many inches, in the style of reports; `salt` makes the names within its SVG its own."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, **(style or {}), "svg.hashsalt": salt}):
        yield Figure(figsize=(width, height), layout=layout)


def _legend(axes: "Axes", num_series: int) -> None:
    if num_series > 0:
        columns = min(num_series, 4)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=10, handlelength=1.4
        )


def svg_of(figure: "Figure") -> str:
    """A figure as an SVG element in the colours of the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for colour, own in ((AXES_INK, "currentColor"), (_GRID, "var(--grid)"), (OTHERS, "var(--others)")):
        text = text.replace(colour, own)
    return text

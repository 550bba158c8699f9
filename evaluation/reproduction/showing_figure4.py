"""Figure 4 as a person reads it: a table in the terminal, and a picture with a panel a seed."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.formatting import cell, number
from evaluation.comparison.report.plots import series_style
from evaluation.reproduction.figure4 import FLOOR, ONE, PER_PART

COLUMNS = {
    "error": "mean absolute error",
    "error_over_floor": "over the floor",
    "correlation": "correlation",
    "mean_replication_error": "error of the mean replication",
    "mean_replication_correlation": "its correlation",
}
NAMES = {
    ONE: "one twin, with the time as input",
    PER_PART: "a twin for every part",
    FLOOR: "the system, simulated again",
}
PANEL_WIDTH, PANEL_HEIGHT = 6.4, 3.7


def as_table(found: dict[str, Any]) -> Group:
    """Errors and correlations by way, and what they were wanted to be."""
    config, wanted = found["config"], found["wanted"]
    title = (
        f"{config['preset']}, log by {config['behaviour']!r}: offload ratio over {config['num_parts']} parts of the "
        f"day, {config['shift']} after the one learned from [{found['interval']}]"
    )
    table = Table(title=Text(title))
    table.add_column("simulated by")
    for column in COLUMNS.values():
        table.add_column(column, justify="right")
    for row in found["rows"]:
        table.add_row(NAMES[row["way"]], *(_cell(row, name) for name in COLUMNS))
    verdicts = [
        Text(f"{NAMES[row['way']]}: error {row['error_verdict']}, correlation {row['correlation_verdict']}")
        for row in found["rows"]
        if row["way"] != FLOOR
    ]
    limits = Text(
        f"wanted: at most {number(wanted['error_over_floor'])} over the floor, correlation at least "
        f"{number(wanted['correlation'])} (not failed where the system does not reach that with itself)"
    )
    return Group(table, limits, *verdicts)


def _cell(row: dict[str, Any], name: str) -> str:
    if row.get(name) is None:
        return ""
    return cell(row, name, signed=name == "error_over_floor")


def plot(found: dict[str, Any], path: Path) -> None:
    """Writes the picture: the logged day, both kinds of twin (means over replications), and all replications of the
    system."""
    seeds = sorted({row["seed"] for row in found["curves"]})
    across = min(2, len(seeds))
    down = -(-len(seeds) // across)
    figure = Figure(figsize=(PANEL_WIDTH * across, PANEL_HEIGHT * down + 0.5), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axes, seed in zip(panels, seeds, strict=False):
        rows = [row for row in found["curves"] if row["seed"] == seed]
        hours = [row["hour"] for row in rows]
        low, high = ([_number(row[f"floor_{side}"]) for row in rows] for side in ("low", "high"))
        axes.fill_between(
            hours, low, high, color="#8C8C8C", alpha=0.3, linewidth=0.0, label="the system, simulated again"
        )
        curves = {"truth": "logged day", ONE: NAMES[ONE], PER_PART: NAMES[PER_PART]}
        for order, (name, label) in enumerate(curves.items()):
            style = series_style(order) | {"linewidth": 1.6, "markersize": 5.0}
            axes.plot(hours, [_number(row[name]) for row in rows], label=label, **style)
        axes.set(title=f"seed {seed}", xlabel="hour of the day")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.6)
        axes.set_axisbelow(True)
    for axes in panels[len(seeds) :]:
        axes.set_visible(False)
    for axes in panels[::across]:
        axes.set_ylabel("share run away from home")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if across > 1 else 2, frameon=False)
    figure.savefig(path, dpi=130)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value

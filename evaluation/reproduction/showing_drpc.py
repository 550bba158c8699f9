"""Paper DRPC's comparison as a person reads it, in the terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.formatting import cell, number, shift_label
from evaluation.reproduction.drpc import RIVALS

COLUMNS = {
    "mean_response_s": "mean, s",
    "p95_response_s": "p95, s",
    "p99_response_s": "p99, s",
    "failures": "failed",
    "objective_kept": "intervals within",
    "cpu_core_hours": "core hours",
}
REWARDS = {"reward": "reward", **{f"reward_over_{rival}": f"over {rival}, paired" for rival in RIVALS}}


def as_table(found: dict[str, Any]) -> Group:
    """Figures by autoscaler and day, rewards, then the frontier of cost against response time."""
    config = found["config"]
    objective = f"p95 within {found['objective_s']:g} s is the objective"
    parts: list[Any] = []
    for days in dict.fromkeys(row["shift_days"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["shift_days"] == days]
        rewards = {name: text for name, text in REWARDS.items() if any(name in row for row in rows)}
        for columns, what in ((COLUMNS, objective), (rewards, "reward")):
            title = f"{config['preset']}, {what} [{found['interval']}]: {shift_label(days)}"
            table = Table(title=Text(title))
            table.add_column("autoscaler")
            for text in columns.values():
                table.add_column(text, justify="right")
            for row in rows:
                table.add_row(
                    row["autoscaler"], *(cell(row, name) if name in row else "" for name in columns)
                )
            parts.append(table)
    frontier = Table(title=Text("settings, all days: response time against cost"))
    for text in ("autoscaler", "setting", "p99, s", "failed", "core hours"):
        frontier.add_column(text)
    for row in sorted(found["frontier"], key=lambda row: (row["autoscaler"], row["cpu_core_hours"])):
        setting = ", ".join(f"{name} {value:g}" for name, value in row["setting"].items())
        figures = (number(row[name]) for name in ("p99_response_s", "failures", "cpu_core_hours"))
        frontier.add_row(row["autoscaler"], setting, *figures)
    return Group(*parts, frontier, *_choices(found), *_forecasts(found))


def _choices(found: dict[str, Any]) -> list[Table]:
    choices = found.get("chosen", [])
    if not choices:
        return []
    table = Table(title=Text("the ladder's choice in the twin, by seed"))
    for text in ("seed", "chosen", "rule", "best learned", "gain over the rule, at least", "held back"):
        table.add_column(text)
    for one in choices:
        low = "" if one["gain_low"] is None else number(one["gain_low"])
        gain = f"{number(one['gain'])}, {low}"
        names = one["chosen"], one["rule"], one["best_learned"].rpartition("-")[0]
        table.add_row(str(one["seed"]), *names, gain, one["held_back"])
    return [table]


def _forecasts(found: dict[str, Any]) -> list[Table]:
    rows = found.get("forecasts", [])
    if not rows:
        return []
    table = Table(
        title=Text("forecasts of the load, mean squared error as a share of the largest rate, squared")
    )
    minutes = list(dict.fromkeys(row["minutes"] for row in rows))
    table.add_column("predictor")
    for one in minutes:
        table.add_column(f"{one} min", justify="right")
    for name in dict.fromkeys(row["predictor"] for row in rows):
        table.add_row(name, *(f"{row['mse']:.5f}" for row in rows if row["predictor"] == name))
    return [table]

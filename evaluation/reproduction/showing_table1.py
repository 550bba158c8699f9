"""Table 1 as a person reads it, in the terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.formatting import cell, number
from evaluation.reproduction.populations import FLOOR
from evaluation.reproduction.table1 import AUC, COLUMN, PAIRS


def as_table(found: dict[str, Any]) -> Group:
    """For each archive: the measures by method, KL by column and method, and warnings of fits."""
    parts: list[Any] = []
    for facts in found["archives"]:
        name = facts["archive"]
        rows = [row for row in found["rows"] if row["archive"] == name]
        fits = [fit for fit in found["fits"] if fit["archive"] == name]
        unseen = (
            f", {facts['num_unseen_rows']} of unseen scenarios left out" if facts["num_unseen_rows"] else ""
        )
        parts += [
            Text(
                f"{name}: a row for every {facts['unit']}, {facts['num_train_rows']} to learn from, "
                f"{facts['num_held_out_rows']} held out{unseen}"
            ),
            _measures(rows, fits, found),
            _columns(rows),
        ]
        for fit in fits:
            parts += [Text(f"{fit['method']}: {text}") for text in fit["warnings"]]
            parts += [
                Text(f"{fit['method']}, seed {seed} failed: {why}") for seed, why in fit["failed"].items()
            ]
    return Group(*parts)


def _measures(rows: list[dict[str, Any]], fits: list[dict[str, Any]], found: dict[str, Any]) -> Table:
    wanted = " / ".join(number(value) for value in found["wanted_over_floor"].values())
    table = Table(title=Text(f"the floor, and over it (wanted: at most {wanted}) [{found['interval']}]"))
    table.add_column("method")
    for name in ("KL of the worst column", PAIRS, AUC, "fit, CPU s"):
        table.add_column(name, justify="right")
    for fit in fits:
        mine = [row for row in rows if row["method"] == fit["method"]]
        shown = "value" if fit["method"] == FLOOR else "over_floor"
        columns = [row for row in mine if row["measure"] == COLUMN]
        worst = max(columns, key=lambda row: float(row[shown]), default=None)
        cells = [worst, *(row for row in mine if row["measure"] != COLUMN)]
        texts = ["" if row is None else _cell(row, shown) for row in cells] if mine else ["failed", "", ""]
        table.add_row(fit["method"], *texts, number(fit["fit_cpu_s"]))
    return table


def _cell(row: dict[str, Any], shown: str) -> str:
    text = cell(row, shown, signed=shown != "value")
    return text if row["column"] is None else f"{row['column']} {text}"


def _columns(rows: list[dict[str, Any]]) -> Table:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    table = Table(title=Text("KL of every column over the floor, nats"))
    for name in ("column", *methods):
        table.add_column(name, justify="left" if name == "column" else "right")
    by_case = {(row["method"], row["column"]): row for row in rows if row["measure"] == COLUMN}
    for column in dict.fromkeys(column for _, column in by_case):
        cells = [by_case[method, column] for method in methods]
        shown = ["value" if row["method"] == FLOOR else "over_floor" for row in cells]
        table.add_row(
            column,
            *(number(row[name], signed=name != "value") for row, name in zip(cells, shown, strict=True)),
        )
    return table

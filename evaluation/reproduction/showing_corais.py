"""CoRaiS's tables as a person reads them, in the terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.formatting import cell, number


def as_table(found: dict[str, Any]) -> Group:
    """One table a scale: every solver's gaps and time."""
    scales = dict.fromkeys(row["scale"] for row in found["rows"])
    return Group(
        *(_of_scale(scale, found) for scale in scales),
        _of_tests(found["characteristics"]),
        _of_rounds(found["rounds"]),
    )


def _of_tests(rows: list[dict[str, Any]]) -> Table:
    title = "load balancing, workload perception, heterogeneity awareness: 100 equal requests come to edge A of five"
    table = Table(title=Text(title))
    for name in ("solver", "seed", "test", "requests of A to E", "answered after, s", "spread", "holds"):
        table.add_column(name, justify="right" if name in ("seed", "spread") else "left")
    for row in rows:
        table.add_row(
            row["solver"],
            "" if row["seed"] is None else str(row["seed"]),
            row["test"],
            ", ".join(f"{one:.1f}" for one in row["requests"]),
            ", ".join(f"{one:.2f}" for one in row["completion_s"]),
            number(row["spread"]),
            "yes" if row["holds"] else "no",
        )
    return table


def _of_rounds(rows: list[dict[str, Any]]) -> Table:
    title = "rounds: response times over those of requests that go at once where they are expected to be answered first"
    table = Table(title=Text(f"{title} [95 % over regions (Student)]"))
    for name in ("load", "functions off by", "solver", "a round, s", "mean response", "p99"):
        table.add_column(name, justify="left" if name == "solver" else "right")
    for row in rows:
        table.add_row(
            number(row["load"]),
            number(row["function_error"]),
            row["solver"],
            number(row["interval_s"]),
            cell(row, "mean_over_at_once"),
            cell(row, "p99_over_at_once"),
        )
    return table


def _of_scale(scale: str, found: dict[str, Any]) -> Table:
    rows = [row for row in found["rows"] if row["scale"] == scale]
    title = f"(edges, of the region, requests) = {scale}, {rows[0]['num_instances']} instances [{found['interval']}]"
    table = Table(title=Text(title))
    table.add_column("solver")
    for name in ("makespan over the best found", "worst", "over the lower bound", "makespan, s", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["solver"],
            cell(row, "gap_to_best"),
            number(row["worst_gap_to_best"]),
            cell(row, "gap_to_bound"),
            number(row["makespan_s"]),
            number(row["seconds"]),
        )
    return table

"""What `reproduce kais` and `reproduce kmps` found, as tables for people."""

from collections.abc import Mapping
from typing import Any


def as_tables(found: Mapping[str, Any]) -> Any:
    """Rows and, of several repeats, differences as rich tables, with 95 % intervals."""
    from rich.console import Group

    if "delay_s" in found["rows"][0]:
        return _centralised(found)
    parts = [_rows(found)]
    if "differences" in found:
        parts.append(_differences(found))
    return Group(*parts, *(f"no row {one['name']}: {one['reason']}" for one in found["absent"]))


def _rows(found: Mapping[str, Any]) -> Any:
    """On-time throughput in the truth."""
    from rich.table import Table

    table = Table(
        title=f"{found['world']} by slots: on time in the truth, {found['changes_per_frame']} changes a frame; "
        f"{found['interval']}"
    )
    for heading in (
        "day", "name", "dispatch", "orchestration", "on time", "cost MiB / request", "tables of", "trainings",
    ):  # fmt: skip
        table.add_column(heading)
    for row in found["rows"]:
        table.add_row(
            str(row["day"]),
            row["name"],
            row["dispatch"],
            row["orchestration"],
            _interval(row),
            f"{row['cost_mib']:.2f}",
            row["trained_in"] or "-",
            str(row["num_trainings"] or "-"),
        )
    return table


def _centralised(found: Mapping[str, Any]) -> Any:
    """Dispatch at access points and in one place."""
    from rich.table import Table

    table = Table(title=f"{found['world']}, day {found['day']}: the expected on-time rule, static deployment")
    for heading in ("load", "decides in", "delay s", "on time of those sent", "response s"):
        table.add_column(heading)
    for row in found["rows"]:
        table.add_row(
            f"{row['load']:g}",
            row["dispatch"],
            f"{row['delay_s']:g}",
            _interval(row, name="on_time_of_sent"),
            _interval(row, name="response_s"),
        )
    return table


def _differences(found: Mapping[str, Any]) -> Any:
    """What is learned or planned, less what it has to beat."""
    from rich.table import Table

    table = Table(title="what is learned or planned, less what it has to beat, paired by repeat")
    for heading in ("day", "name", "less", "on time"):
        table.add_column(heading)
    for row in found["differences"]:
        table.add_row(str(row["day"]), row["name"], row["reference"], _interval(row, "+"))
    return table


def _interval(row: Mapping[str, Any], sign: str = "", name: str = "on_time") -> str:
    low, high = ("low", "high") if name == "on_time" else (f"{name}_low", f"{name}_high")
    shown = f"{row[name]:{sign}.3f}"
    if row[low] is None or row[high] is None:
        return shown
    return f"{shown} [{row[low]:{sign}.3f}, {row[high]:{sign}.3f}]"

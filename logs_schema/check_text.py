"""The quality report as a person reads it in a terminal."""

import io
import math
import os
import shutil
import sys
from datetime import date, timedelta

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from logs_schema.capabilities import percent
from logs_schema.check_report import CheckReport, in_digits
from logs_schema.errors import counted
from logs_schema.log_days import LogDays

MARKS = {"yes": ("✓ yes", "green"), "partial": ("~ partial", "yellow"), "no": ("✗ no", "red")}
LEVELS = " ▁▂▃▄▅▆▇█"
MAX_WARNING_LINES = 12
MANY_LEFT_OUT = 0.5
"""Share of a table's rows from which on the verdict says that they were left out."""


def render(report: CheckReport, *, width: int | None = None, colour: bool | None = None) -> str:
    """The report as text: verdict, tables, days, capacities, capabilities, warnings.

    Args:
        report: The report.
        width: Columns of the terminal; its own width if None, 100 where there is no terminal.
        colour: Whether to add colour codes; if None, only in a terminal that has not set NO_COLOR.
    """
    terminal = sys.stdout.isatty()
    if colour is None:
        colour = terminal and "NO_COLOR" not in os.environ
    if width is None:
        width = min(shutil.get_terminal_size().columns, 140) if terminal else 100
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,  # names and messages hold brackets and colons of their own
        emoji=False,
        legacy_windows=False,
    )
    console.print(Group(*_parts(report, width)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _parts(report: CheckReport, width: int) -> list[RenderableType]:
    parts = [_verdict(report), _tables(report), *_days(report.days, width)]
    if _has_requests(report):
        parts.append(_timing(report))
    if report.capacities:
        parts.append(_capacities(report))
    parts.append(_capabilities(report))
    if report.warnings:
        parts.append(_list("Warnings (rows are kept)", report.warnings, "yellow"))
    if report.doubts:
        parts.append(_list("What makes figures doubtful", report.doubts, "yellow"))
    notes = report.facts.get("notes", [])
    if notes:
        parts.append(_list("How the log was read", tuple(notes), "cyan"))
    return [part for whole in parts for part in (whole, Text())][:-1]


def _verdict(report: CheckReport) -> RenderableType:
    style = "green" if report.usable else "red"
    lines = Text("usable" if report.usable else "not usable", style=f"bold {style}")
    for problem in report.problems:
        lines.append(f"\n✗ {problem}", style="red")
    for name, table in report.tables.items():
        if table.left_out > MANY_LEFT_OUT:
            lines.append(
                f"\n~ {name}: {100 * table.left_out:.0f} % of the rows were left out as no requests of their own; "
                "right for steps of jobs, wrong where they are what ran: then mend [only] of the mapping",
                style="yellow",
            )
    log = f"format {report.facts.get('format', 'unknown')}, content {report.content_hash[:12]}"
    lines.append(f"\n{log}", style="dim")
    if report.facts.get("clock") == "relative":
        lines.append("\ndates are counted from an origin that is not in the log", style="dim")
    return Panel(lines, title=Text(f"Archive {report.archive}"), title_align="left", border_style=style)


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _titled(title: str, table: Table) -> RenderableType:
    """A table under a title that may be wider than it."""
    return Group(Text(title, style="bold"), table)


def _tables(report: CheckReport) -> RenderableType:
    table = _table()
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("quarantined", justify="right")
    table.add_column("superseded", justify="right")
    table.add_column("rules", overflow="fold")
    for name, counts in report.tables.items():
        counted_rules = sorted({**counts.rules, **counts.superseded}.items())
        rules = ", ".join(f"{rule} {count:,}" for rule, count in counted_rules)
        table.add_row(
            name,
            f"{counts.rows:,}",
            Text(f"{counts.quarantined:,}", style="yellow" if counts.quarantined else ""),
            f"{sum(counts.superseded.values()):,}",
            rules or "none",
        )
    return _titled("Tables", table)


def _days(days: LogDays, width: int) -> list[RenderableType]:
    if days.dense is None:
        return []
    first, last = min(days.rows), max(days.rows)
    text = Text("Days\n", style="bold")
    span = (last - first).days + 1
    text.append(
        f"{first} to {last}: {span:,} days, {len(days.missing):,} missing, {len(days.thin):,} thin; "
        f"longest dense stretch {days.num_dense_days:,} days ({days.dense[0]} to {days.dense[1]})\n",
        style="not bold",
    )
    bars, days_per_bar = _bars(days, max(width - 2, 20))
    text.append(bars, style="cyan not bold")
    unit = "day" if days_per_bar == 1 else f"{days_per_bar} days"
    busiest = max(days.rows.values())
    text.append(f"\nrequests per day, one bar per {unit}; busiest day {busiest:,}", style="dim not bold")
    return [text]


def _bars(days: LogDays, width: int) -> tuple[str, int]:
    """Mean rows per day as one bar per so many days, scaled to the tallest."""
    first: date = min(days.rows)
    span = (max(days.rows) - first).days + 1
    days_per_bar = -(-span // width)
    means = []
    for begin in range(0, span, days_per_bar):
        covered = range(begin, min(begin + days_per_bar, span))
        means.append(sum(days.rows.get(first + timedelta(days=n), 0) for n in covered) / len(covered))
    tallest = max(means)
    return "".join(LEVELS[math.ceil((len(LEVELS) - 1) * mean / tallest)] for mean in means), days_per_bar


def _timing(report: CheckReport) -> RenderableType:
    timing = report.timing
    unordered = "not counted" if timing.num_out_of_order is None else f"{timing.num_out_of_order:,}"
    table = _table()
    table.add_column("what")
    table.add_column("requests", justify="right")
    table.add_row("duplicates, in quarantine", f"{report.num_duplicates:,}")
    table.add_row("late: ended after the last arrival", f"{timing.num_late:,}")
    table.add_row("no known finish", f"{timing.num_unfinished:,}")
    table.add_row("out of order in the file", unordered)
    overruns = (
        f"{timing.num_overruns:,} of {timing.num_with_request:,}" if timing.num_with_request else "unknown"
    )
    table.add_row("ran longer than requested", overruns)
    return _titled("Requests in time", table)


def _capacities(report: CheckReport) -> RenderableType:
    table = _table()
    for name, justify in (
        ("resource", "left"),
        ("checked", "right"),
        ("over", "right"),
        ("largest share", "right"),
        ("worst", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for line in report.capacities:
        worst = ", ".join(
            f"{place.place} {in_digits(place.peak)} of {in_digits(place.capacity)}" for place in line.over[:2]
        )
        table.add_row(
            line.resource,
            counted(line.num_places, line.kind),
            Text(f"{len(line.over):,}", style="yellow" if line.over or line.num_guessed else "green"),
            f"{100 * line.largest_share:.1f} %",
            worst or (f"{line.num_guessed:,} guessed from this very use" if line.num_guessed else ""),
        )
    return _titled("Concurrent use against capacity", table)


def _capabilities(report: CheckReport) -> RenderableType:
    table = _table()
    table.add_column("capability", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    table.add_column("enables", overflow="fold", style="dim")
    shown = [line for line in report.capabilities if line.answer != "no" or _has_requests(report)]
    for line in shown:
        mark, style = MARKS[line.answer]
        name = line.name.replace("_", " ")
        table.add_row(name, Text(mark, style=style), percent(line.fraction), line.reason, line.enables)
    titled = _titled("What this log can support", table)
    others = [line.name.replace("_", " ") for line in report.capabilities if line not in shown]
    if not others:
        return titled
    return Group(titled, Text(f"nothing else, for it has no requests: no {', '.join(others)}", style="dim"))


def _has_requests(report: CheckReport) -> bool:
    counts = report.tables.get("requests")
    return counts is not None and counts.rows > 0


def _list(title: str, lines: tuple[str, ...], style: str) -> RenderableType:
    table = _table()
    table.show_header = False
    table.add_column("", style=style, no_wrap=True)
    table.add_column("", overflow="fold")
    for line in lines[:MAX_WARNING_LINES]:
        table.add_row("•", line)
    if len(lines) > MAX_WARNING_LINES:
        table.add_row("", f"and {len(lines) - MAX_WARNING_LINES} more in --json")
    return _titled(title, table)

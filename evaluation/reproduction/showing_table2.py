"""The table as a person reads it, in the terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.formatting import cell, number, shift_label


def as_table(found: dict[str, Any]) -> Group:
    """Shares on time and offload ratios by policy and day, differences, and what the paper printed."""
    days = list(dict.fromkeys(row["shift_days"] for row in found["rows"]))
    title = f"{found['preset']}, log by {found['behaviour']!r}"
    if (most := found["config"]["max_requests"]) is not None:
        title += f", the first {most:,} requests of every day"
    parts: list[Any] = [
        _of(found, days, "on_time", f"{title}: share of requests on time [{found['interval']}]"),
        _of(found, days, "offload_ratio", f"{title}: share of requests that ran away from home"),
        _of(
            found,
            days,
            "failures_avoided",
            f"{title}: failures avoided, as a share of those of the day's best rule",
        ),
        _of(
            found,
            days,
            "share_of_reference",
            f"{title}: improvement over the day's best rule, as a share of the reference's",
        ),
    ]
    parts = [one for one in parts if one.row_count]  # without references there are no shares of theirs
    for row in found["differences"]:
        gap, low, high = (
            number(row[name], signed=True) for name in ("on_time", "on_time_low", "on_time_high")
        )
        when = shift_label(row["shift_days"])
        parts.append(
            Text(f"{row['policy']} - {row['reference']}, {when}: {gap} [{low}, {high}]: {row['verdict']}")
        )
    parts += [
        Text(
            f"{row['policy']}, {shift_label(row['shift_days'])}: {row['overflow']:.1%} of the requests found no slot "
            "among those in flight and count as late: its true share may be higher"
        )
        for row in found["rows"]
        if row["overflow"] > 0.0
    ]
    parts.append(
        Text(
            f"in-model value by the twin's member held out: {number(found['in_model_on_time'])}, "
            f"{number(found['optimism_gap'], signed=True)} of the truth on the first day"
        )
    )
    for one in found.get("seeds", [{"seed": found["config"]["seed"]} | found]):
        verdict = "no certificate" if one["certificate"] is None else f"certificate: {one['certificate']}"
        parts.append(Text(f"seed {one['seed']}: {verdict}; the ladder chose {one['chosen']}"))
    for name, values in found["paper_offload_over_random"].items():
        published = ", ".join(f"{shift_label(int(day))} {value:.2%}" for day, value in values.items())
        parts.append(Text(f"Xiong et al., table 2, offload ratio over random, {name}: {published}"))
    for one in found["references"]:
        took = "an unknown time" if one["train_s"] is None else f"{one['train_s']:.0f} s"
        training = f"{one['num_updates']} updates in {took}, the last doubling gained {one['last_gain']:+.4f}"
        parts.append(Text(f"reference of day {one['day']}: {training}"))
    return Group(*parts)


def _of(found: dict[str, Any], days: list[int], name: str, title: str) -> Table:
    table = Table(title=Text(title))
    table.add_column("policy")
    for day in days:
        table.add_column(shift_label(day), justify="right")
    by_case = {(row["policy"], row["shift_days"]): row for row in found["rows"]}
    for policy in dict.fromkeys(row["policy"] for row in found["rows"]):
        rows = [by_case.get((policy, day), {}) for day in days]
        cells = ["" if row.get(name) is None else cell(row, name) for row in rows]
        if any(cells):
            table.add_row(policy, *cells)
    return table

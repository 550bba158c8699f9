"""The state of a fleet for people: a table for a terminal, and a page without scripts that loads itself again."""

from collections.abc import Sequence
from pathlib import Path

from evaluation.certify.lines import Verdict
from evaluation.comparison.report.pages import page_environment
from evaluation.pipeline.fleet.outcomes import DONE, OVERDUE, LogDrift
from evaluation.pipeline.fleet.states import ClusterState, FleetState, Phase
from evaluation.pipeline.refresh.deciding import EXIT_STATUS, Result
from logs_schema.calendar import DAY_S, HOUR_S
from logs_schema.disk import write_aside

RELOAD_S = 60
IN_ORDER = (DONE, EXIT_STATUS[Result.KEPT])
HASH_DIGITS = 12
COLUMNS = (
    "cluster",
    "certificate",
    "twin until",
    "running bundle",
    "trained until",
    "drift",
    "last refresh",
    "next",
    "",
)
MARKS = {Verdict.PASS.value: "better", Verdict.FAIL.value: "worse"}
"""Class of the page's style by verdict."""


def in_age(seconds: float) -> str:
    """An age in words, such as "5 min", "7 h" or "3 d"; negative ones are in the future and count from 0."""
    seconds = max(0.0, seconds)
    if seconds < HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} d"


def drift_in_words(drift: LogDrift | None) -> str:
    """What has drifted, such as "waits 2.0 x the limit"; empty where nothing was compared."""
    if drift is None or drift.note:
        return ""
    beyond = [f"{one.aspect} {one.distance / one.limit:.1f} x" for one in drift.aspects if one.has_drifted]
    return f"{', '.join(beyond)} the limit" if beyond else "within the limits"


def next_in_words(state: FleetState, one: ClusterState) -> str:
    """When the next refresh is due, or what the present one is doing."""
    if one.phase is Phase.WAITING:
        return f"in {in_age(-state.age_s(one.due))}"
    if one.phase is Phase.UNDER_WAY:
        return f"under way for {in_age(state.age_s(one.attempt))}" if one.attempt else "under way"
    return "interrupted, due" if one.phase is Phase.INTERRUPTED else "due"


def trouble_in_words(one: ClusterState) -> str:
    """What is amiss in one line; empty if nothing is."""
    if one.trouble:
        return _first_line(one.trouble)
    if one.outcome is not None and one.outcome.is_error:
        return _first_line(one.outcome.reason)
    if one.exit_status == OVERDUE:
        return "overdue" if one.outcome is not None else "never refreshed"
    return ""


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def rows(state: FleetState) -> list[tuple[str, ...]]:
    """A row for each cluster, with the columns of `COLUMNS`."""
    found: list[tuple[str, ...]] = []
    for one in state.clusters:
        twin, running, outcome = one.twin, one.running, one.outcome
        found.append(
            (
                one.name,
                "none" if twin is None else f"{twin.verdict}, {in_age(state.age_s(twin.created))}",
                twin.last_day if twin is not None else "",
                "none" if running is None else running.content_hash[:HASH_DIGITS],
                running.last_day if running is not None else "",
                drift_in_words(one.drift),
                "none" if outcome is None else f"{outcome.result}, {in_age(state.age_s(outcome.ended))} ago",
                next_in_words(state, one),
                trouble_in_words(one),
            )
        )
    return found


def as_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain table: columns are as wide as they need to be, and empty ones are left out."""
    used = [place for place in range(len(heads)) if any(line[place] for line in lines)]
    whole = [[line[place] for place in used] for line in (heads, *lines)]
    widths = [max(len(line[place]) for line in whole) for place in range(len(used))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in whole
    )


def as_text(state: FleetState) -> str:
    """The state as a table."""
    return as_table(COLUMNS, rows(state))


def write_page(state: FleetState, path: Path) -> None:
    """Writes the page aside and renames it into place."""
    environment = page_environment("evaluation.pipeline.fleet")
    amiss = [one for one in state.clusters if one.exit_status not in IN_ORDER]
    text = environment.get_template("fleet.html.j2").render(
        state=state, amiss=amiss, reload_s=RELOAD_S, in_age=in_age, drift_in_words=drift_in_words, marks=MARKS,
        next_in_words=next_in_words, trouble_in_words=trouble_in_words, in_order=IN_ORDER, digits=HASH_DIGITS,
    )  # fmt: skip
    write_aside(path, text)

"""A comparison as tables for the terminal."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import is_far
from evaluation.comparison.formatting import FAR_MARK, GUESS, NO_VALUE, shift_label, with_interval

_STYLE = {
    DifferenceVerdict.BETTER: "green",
    DifferenceVerdict.WORSE: "red",
    DifferenceVerdict.CANNOT_TELL: "dim",
}
_SIGN = {
    DifferenceVerdict.BETTER: "+",
    DifferenceVerdict.WORSE: "\N{MINUS SIGN}",
    DifferenceVerdict.CANNOT_TELL: "~",
}


def tabulate(comparison: Comparison, *, metric: str | None = None) -> Group:
    """One table for each judge: policies by shifts, each value with its interval and its verdict against a reference.

    Args:
        comparison: The comparison.
        metric: Name of the metric; the main one by default.

    Returns:
        The tables as a rich renderable, a sentence for a judge without values of the metric; signs refer to the
        reference of the comparison.
    """
    name = metric or comparison.main_metric
    facts = next(item for item in comparison.metrics if item.name == name)
    against = comparison.reference() or ""
    percent = f"{100 * comparison.level:.0f} %"
    tables: list[Table | Text] = []
    for judge in comparison.judges:
        title = f"{name} [{facts.unit}], {facts.better} is better, judged by {judge.name}"
        table = Table(title=Text(title), caption=Text(_caption(percent, comparison.unit_kind, against)))
        table.add_column("policy")
        for shift in comparison.shifts:
            table.add_column(Text(shift_label(shift.shift_days)), justify="right")
        for policy in comparison.policies:
            cells = [
                _cell(comparison, judge.name, shift.shift_days, policy.name, name, against)
                for shift in comparison.shifts
            ]
            if any(cell.plain != NO_VALUE for cell in cells):
                table.add_row(Text(policy.name), *cells)
        tables.append(table if table.row_count else Text(f"judge {judge.name} has no values of {name}"))
    if any(is_far(tally.out_of_support) for tally in comparison.tallies):
        tables.append(Text(f"{FAR_MARK} {GUESS}"))
    notes = (*_without_interval(comparison, name), *_shift_notes(comparison), *comparison.judge_notes)
    tables += [Text(f"note: {note}") for note in notes]
    return Group(*tables)


def printed(renderable: RenderableType) -> str:
    """The text that rich prints, 160 columns wide."""
    console = Console(width=160)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def _caption(percent: str, unit_kind: str, against: str) -> str:
    text = f"{percent} intervals over {unit_kind}"
    return f"{text}; + better, \N{MINUS SIGN} worse, ~ cannot tell, against {against}" if against else text


def _cell(
    comparison: Comparison, judge: str, shift_days: int, policy: str, metric: str, against: str
) -> Text:
    estimate = comparison.cell(judge, shift_days, policy, metric)
    if estimate is None or estimate.value is None:
        return Text(NO_VALUE, style="dim")
    mark = FAR_MARK if comparison.is_far(judge, shift_days, policy) else ""
    text = f"{with_interval(estimate)}{mark}"
    found = comparison.difference(judge, shift_days, policy, against, metric)
    if found is None or found.verdict not in _SIGN:
        return Text(text)
    return Text(f"{text} {_SIGN[found.verdict]}", style=_STYLE[found.verdict])


def _without_interval(comparison: Comparison, metric: str) -> list[str]:
    """Why values of the metric have no interval, each reason once, with the judges and shifts that it is of."""
    found: dict[str, dict[str, None]] = {}
    for one in comparison.cells:
        if one.metric == metric and one.estimate.value is not None and one.estimate.low is None:
            where = f"{one.judge} after {shift_label(one.shift_days)}"
            found.setdefault(one.estimate.reason, {})[where] = None
    return [f"{reason} ({', '.join(where)})" for reason, where in found.items()]


def _shift_notes(comparison: Comparison) -> list[str]:
    return [f"{shift_label(shift.shift_days)}: {shift.note}" for shift in comparison.shifts if shift.note]

"""A certificate as one self-contained page: every line with its threshold, its verdict and a small figure."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from rich.table import Table

from evaluation.certify.certificate import Certificate
from evaluation.certify.family import FAMILY, withholding
from evaluation.certify.lines import NO_CLONE, Line, Verdict
from evaluation.comparison.formatting import NO_VALUE, interval, number, with_interval
from evaluation.comparison.report.pages import page_environment
from evaluation.comparison.report.plots import chart_plot
from logs_schema.errors import counted

WIDTH, HEIGHT, MARGIN = 200.0, 30.0, 8.0
CLASSES = {
    Verdict.PASS: "better",
    Verdict.FAIL: "worse",
    Verdict.CANNOT_TELL: "unsure",
    Verdict.NOT_APPLICABLE: "soft",
}
MARKS = {
    Verdict.PASS: "\N{CHECK MARK}",
    Verdict.FAIL: "\N{MULTIPLICATION SIGN}",
    Verdict.CANNOT_TELL: "?",
    Verdict.NOT_APPLICABLE: "\N{EN DASH}",
}


def render(certificate: Certificate, title: str) -> str:
    """The page as HTML; text from logs is escaped."""
    environment = page_environment("evaluation.certify")
    sections = [
        {
            "name": section.name,
            "about": section.about,
            "rows": [_row(line) for line in certificate.lines if line.section == section.name],
            "charts": [{"chart": chart, "svg": Markup(chart_plot(chart))} for chart in section.charts],
        }
        for section in certificate.sections
    ]
    failed, unsure = (
        [line for line in certificate.lines if line.verdict is one]
        for one in (Verdict.FAIL, Verdict.CANNOT_TELL)
    )
    return environment.get_template("certificate.html.j2").render(
        title=title,
        certificate=certificate,
        verdict=certificate.verdict.value,
        verdict_class=CLASSES[certificate.verdict],
        mark=MARKS[certificate.verdict],
        counts=certificate.counts(),
        training=certificate.training.value,
        sections=sections,
        days=_stretches(certificate.days, certificate.days),
        pairs=_stretches(certificate.days, certificate.partners),
        failed=failed,
        family=FAMILY,
        untested=certificate.untested,
        no_clone=NO_CLONE,
        decides=any(line.deciding for line in certificate.lines),
        unsure=unsure,
    )


def _stretches(days: Sequence[str], beside: Sequence[str]) -> list[tuple[str, str]]:
    """Days and their partner days as stretches: days that are consecutive on both sides are merged."""
    runs: list[list[tuple[str, str]]] = []
    for pair in zip(days, beside, strict=False):  # a refused certificate has none
        if runs and pair == tuple(_next_day(day) for day in runs[-1][-1]):
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return [(_span(run[0][0], run[-1][0]), _span(run[0][1], run[-1][1])) for run in runs]


def _next_day(day: str) -> str:
    return (dt.date.fromisoformat(day) + dt.timedelta(days=1)).isoformat()


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def as_table(certificate: Certificate) -> Table:
    """The lines as a table for the terminal."""
    table = Table(box=None, pad_edge=False)
    for name in ("verdict", "measure", "twin", "floor", "threshold", "days needed"):
        table.add_column(name, justify="left" if name in ("verdict", "measure") else "right")
    for line in certificate.lines:
        if line.verdict is Verdict.NOT_APPLICABLE:
            table.add_row(line.verdict.value, f"{line.name}: {line.reason}", "", "", "", "")
        else:
            floor = "" if line.floor.value is None else number(line.floor.value)
            days = "" if line.days is None else str(line.days)
            name = f"{line.name} (decides)" if line.deciding else line.name
            table.add_row(line.verdict.value, name, with_interval(line.value), floor, line.threshold, days)
    return table


def withheld_in_words(certificate: Certificate) -> list[str]:
    """Why a twin is not certified for training, a sentence a reason; empty where it is, or nothing was measured."""
    if certificate.refusal:
        return [certificate.refusal]
    if certificate.training is Verdict.PASS:
        return []
    return [
        "; ".join(filter(None, (
            f"{line.verdict.value}: {line.name}, {with_interval(line.value)}",
            f"threshold {line.threshold}" + ("" if line.floor.value is None else f", floor {number(line.floor.value)}"),
            line.reason, days_in_words(line),
        )))
        for line in withholding(certificate.lines, but_for=certificate.beside)
    ]  # fmt: skip


def reasons_in_words(certificate: Certificate) -> list[str]:
    """Why lines cannot tell, for the terminal, with the number of lines of every reason; then the notes."""
    unsure = [line for line in certificate.lines if line.verdict is Verdict.CANNOT_TELL and line.reason]
    counts = Counter(line.reason for line in unsure)
    lines = (f"cannot tell in {counted(number, 'line')}: {reason}" for reason, number in counts.items())
    return [*lines, *(f"note: {one}" for one in certificate.notes)]


def days_in_words(line: Line) -> str:
    """The number of days needed for a verdict, of a line that cannot tell; empty where it is unknown."""
    if line.verdict is not Verdict.CANNOT_TELL or line.days is None:
        return ""
    return f"about {line.days} held-out days are needed for a verdict"


def _row(line: Line) -> dict[str, Any]:
    silent, same = line.value.value is None, line.judged == line.value or line.floor.value is None
    return {
        "name": line.name,
        "unit": line.unit,
        "verdict": line.verdict.value,
        "class": CLASSES[line.verdict],
        "mark": MARKS[line.verdict],
        "value": "" if silent else number(line.value.value),
        "interval": "" if line.value.low is None else interval(line.value),
        "floor": "" if line.floor.value is None else number(line.floor.value),
        "excess": "" if same or line.judged.value is None else number(line.judged.value, signed=True),
        "excess_interval": "" if same or line.judged.low is None else interval(line.judged, signed=True),
        "threshold": NO_VALUE if line.limit is None else line.threshold,
        "reason": line.reason,
        "deciding": line.deciding,
        "days": days_in_words(line),
        "picture": "" if silent else Markup(picture(line)),
    }


def picture(line: Line) -> str:
    """A strip: the bad side shaded, the floor as a ring, the value as a dot with its interval.

    Where the value is judged against the floor, the interval shown is that of their difference, on top of the floor;
    where it is judged by its size, the size is shown.
    """
    value, floor, limit = line.value.value, line.floor.value, line.limit
    if value is None or limit is None:
        return ""
    judged_over_floor = line.judged != line.value and floor is not None
    base = floor if judged_over_floor and floor is not None else 0.0
    dot = value if judged_over_floor or line.judged.value is None else line.judged.value
    bounds = [base + bound for bound in (line.judged.low, line.judged.high) if bound is not None]
    edge = base + limit
    points = [dot, edge, *bounds, *([] if floor is None else [floor])]
    low, high = min(0.0, *points), max(points)
    high += 0.05 * (high - low) or 1.0

    def at(number_shown: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (number_shown - low) / (high - low)

    middle = HEIGHT / 2
    bad = (MARGIN / 2, at(edge)) if line.higher_is_better else (at(edge), WIDTH - MARGIN / 2)
    wide, tall = max(bad[1] - bad[0], 0.0), HEIGHT - 6
    parts = [
        f'<rect class="bad-side" x="{bad[0]:.1f}" y="3" width="{wide:.1f}" height="{tall:.0f}"/>',
        _stroke("edge", (at(edge), at(edge)), (2.0, HEIGHT - 2)),
    ]
    if floor is not None:
        parts.append(f'<circle class="floor" cx="{at(floor):.1f}" cy="{middle:.0f}" r="4.5"/>')
    if bounds:
        parts.append(_stroke("span", (at(bounds[0]), at(bounds[1])), (middle, middle)))
    parts.append(f'<circle class="dot" cx="{at(dot):.1f}" cy="{middle:.0f}" r="4"/>')
    label = f"{number(value)}, threshold {line.threshold}"
    return (
        f'<svg class="strip {CLASSES[line.verdict]}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def _stroke(kind: str, x: tuple[float, float], y: tuple[float, float]) -> str:
    return f'<line class="{kind}" x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"/>'

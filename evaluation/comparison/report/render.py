"""Renders a report as one self-contained HTML file, and as JSON."""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import Difference
from evaluation.comparison.formatting import FAR_MARK, GUESS, NO_VALUE, interval, number, shift_label
from evaluation.comparison.report.content import Chart, Report
from evaluation.comparison.report.overview import columns, figure_file, figure_note, figure_title, panels
from evaluation.comparison.report.pages import page_environment
from evaluation.comparison.report.plots import COLOURS, chart_plot
from evaluation.comparison.report.roles import Strong, strong_policies
from evaluation.comparison.report.verdict import verdict
from evaluation.comparison.report.words import far_policies, not_applicable, standing_limits, summary
from logs_schema.records import to_plain

_WORDS = {
    DifferenceVerdict.BETTER: "better",
    DifferenceVerdict.WORSE: "worse",
    DifferenceVerdict.CANNOT_TELL: "cannot tell",
    DifferenceVerdict.NO_DIRECTION: "",
}
_MARKS = {
    "better": " \N{BLACK UP-POINTING TRIANGLE}",
    "worse": " \N{BLACK DOWN-POINTING TRIANGLE}",
    "cannot tell": " ~",
    "": "",
}
"""Words of a verdict -> the mark beside a value in the compact table."""


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Writes `report.html` and `report.json` into an existing folder, and returns their paths.

    The figure of the page is written as `comparison.svg`, where there is one.
    """
    page, data = folder / "report.html", folder / "report.json"
    page.write_text(render(report), encoding="utf-8")
    data.write_text(json.dumps(to_plain(report), allow_nan=False) + "\n", encoding="utf-8")
    if picture := figure_file(report.comparison):
        (folder / "comparison.svg").write_text(picture, encoding="utf-8")
    return page, data


def write_comparison(report: Report, folder: Path) -> dict[str, Any]:
    """Writes the comparison of a report as `comparison.json`, and the report beside it; returns a product's facts."""
    plain = report.comparison.to_json()
    (folder / "comparison.json").write_text(json.dumps(plain, allow_nan=False) + "\n")
    write_report(report, folder)
    return {"main_metric": report.comparison.main_metric}


def render(report: Report) -> str:
    """The page as HTML; text from logs is escaped."""
    environment = page_environment()
    comparison, over = report.comparison, report.comparison.reference()
    figure = [Markup(panel) for panel in panels(comparison).values()]
    sentences = verdict(comparison)
    environment.filters.update(number=number, shift=shift_label)
    return environment.get_template("report.html.j2").render(
        report=report,
        comparison=comparison,
        verdict=sentences,
        is_guess=any(FAR_MARK in sentence for sentence in sentences),
        summary=summary(comparison),
        figure=figure,
        columns=columns(len(figure)),
        figure_title=figure_title(comparison),
        figure_note=" ".join(figure_note(comparison)),
        leading=_leading(comparison),
        marks=_MARKS,
        far=far_policies(comparison),
        far_mark=FAR_MARK,
        guess=GUESS,
        reference=over,
        improvements=[Markup(panel) for panel in panels(comparison, over).values()]
        if over is not None
        else [],
        off_policy=_off_policy(comparison),
        metrics=_by_metric(comparison),
        not_applicable=not_applicable(comparison),
        limits=[*standing_limits(comparison), *report.limits],
        calibration=[_with_plot(chart) for chart in report.calibration],
        learning=[_with_plot(chart) for chart in report.learning],
        archive=_flat(to_plain(comparison.archive)),
        settings=_flat(to_plain(report.configuration)),
    )


def _tables(comparison: Comparison, metric: str) -> list[dict[str, Any]]:
    """One table for each judge: rows are policies, columns shifts."""
    reference = comparison.reference() or ""
    tables = []
    for judge in comparison.judges:
        rows = []
        for policy in comparison.policies:
            cells = [
                _cell(comparison, judge.name, shift.shift_days, policy.name, metric, reference)
                for shift in comparison.shifts
            ]
            rows.append({"policy": policy.name, "cells": cells})
        tables.append({"judge": judge.name, "rows": rows})
    return tables


def _leading(comparison: Comparison) -> list[dict[str, Any]]:
    """The tables of the main metric: the main policies first, with the colour of their line, then the others."""
    strong = {one.policy: one for one in strong_policies(comparison)}
    tables = _tables(comparison, comparison.main_metric)
    for table in tables:
        rows = {row["policy"]: row | _outstanding(strong.get(row["policy"])) for row in table["rows"]}
        table["rows"] = [*(rows[name] for name in strong), *(row for row in rows.values() if not row["role"])]
    return tables


def _outstanding(strong: Strong | None) -> dict[str, str]:
    return {"role": strong.role, "colour": COLOURS[strong.style]} if strong else {"role": "", "colour": ""}


def _cell(
    comparison: Comparison, judge: str, shift_days: int, policy: str, metric: str, reference: str
) -> dict[str, Any]:
    estimate = comparison.cell(judge, shift_days, policy, metric)
    if estimate is None or estimate.value is None:
        reason = "not judged here" if estimate is None else estimate.reason
        return {"value": NO_VALUE, "interval": "", "units": 0, "verdict": "", "reason": reason}
    found = comparison.difference(judge, shift_days, policy, reference, metric)
    return {
        "value": number(estimate.value) + (FAR_MARK if comparison.is_far(judge, shift_days, policy) else ""),
        "interval": "" if estimate.low is None else interval(estimate),
        "units": estimate.num_units,
        "verdict": "" if found is None else _WORDS[found.verdict],
        "reason": estimate.reason,
    }


def _off_policy(comparison: Comparison) -> list[dict[str, Any]]:
    """One table for each shift: rows are policies, columns estimators."""
    tables = []
    for shift_days in dict.fromkeys(row.shift_days for row in comparison.off_policy):
        here = [row for row in comparison.off_policy if row.shift_days == shift_days]
        methods = list(dict.fromkeys(row.method for row in here))
        by_policy = {row.policy: [one for one in here if one.policy == row.policy] for row in here}
        rows = [
            {
                "policy": policy,
                "overlap": found[0].overlap,
                "cells": [
                    {
                        "value": number(one.estimate.value),
                        "interval": "" if one.estimate.low is None else interval(one.estimate),
                        "reason": one.estimate.reason,
                    }
                    for one in found
                ],
            }
            for policy, found in by_policy.items()
        ]
        first = here[0]
        table = {"shift_days": shift_days, "methods": methods, "rows": rows}
        tables.append({**table, "num_rows": first.num_rows, "estimated": first.estimated})
    return tables


def _by_metric(comparison: Comparison) -> list[dict[str, Any]]:
    """Every metric with at least one value, its tables, and the paired differences among the strong policies.

    Of the main metric also those of the other policies to the reference. `report.json` has all.
    """
    strong, reference = {one.policy for one in strong_policies(comparison)}, comparison.reference()

    def is_shown(found: Difference) -> bool:
        is_named = found.policy in strong or (
            found.metric == comparison.main_metric and found.reference == reference
        )
        return (
            is_named and found.reference in strong and not comparison.is_alike(found.policy, found.reference)
        )

    valued = {cell.metric for cell in comparison.cells if cell.estimate.value is not None}
    return [
        {
            "facts": facts,
            "tables": _tables(comparison, facts.name),
            "differences": [
                found for found in comparison.differences if found.metric == facts.name and is_shown(found)
            ],
        }
        for facts in comparison.metrics
        if facts.name in valued
    ]


def _with_plot(chart: Chart) -> dict[str, Any]:
    return {"chart": chart, "svg": Markup(chart_plot(chart))}


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text)."""
    if isinstance(value, dict):
        return [
            row for key, item in value.items() for row in _flat(item, f"{prefix}.{key}" if prefix else key)
        ]
    if isinstance(value, list):
        return [(prefix, ", ".join(str(item) for item in value))]
    return [(prefix, "not set" if value is None else str(value))]

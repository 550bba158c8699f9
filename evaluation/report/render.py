"""Renders a report as one HTML file that needs nothing but itself, and the same as JSON."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evaluation.bootstrap import Verdict
from evaluation.comparison import Comparison
from evaluation.formatting import FAR_MARK, GUESS, NO_VALUE, interval, number, shift_label
from evaluation.records import to_plain
from evaluation.report.content import Chart, Report
from evaluation.report.plots import chart_plot, plotted_together, shift_plot
from evaluation.report.words import far_policies, not_applicable, references, standing_limits, summary

_WORDS = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.CANNOT_TELL: "cannot tell",
    Verdict.NO_DIRECTION: "",
}


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Writes `report.html` and `report.json` into an existing folder, and returns their paths."""
    page, data = folder / "report.html", folder / "report.json"
    page.write_text(render(report), encoding="utf-8")
    data.write_text(json.dumps(to_plain(report), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return page, data


def render(report: Report) -> str:
    """The page as text; everything that comes from logs is escaped."""
    environment = Environment(
        loader=PackageLoader("evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    comparison, over = report.comparison, _improved_over(report.comparison)
    environment.filters.update(number=number, shift=shift_label)
    return environment.get_template("report.html.j2").render(
        report=report,
        comparison=comparison,
        summary=[*report.warnings, *summary(comparison)],
        leading=_tables(comparison, comparison.main_metric),
        far=far_policies(comparison),
        far_mark=FAR_MARK,
        guess=GUESS,
        reference=_table_reference(comparison),
        improvements=_shift_plots(comparison, over) if over is not None else [],
        values=_shift_plots(comparison, None),
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
    """One table a judge: rows are policies, columns shifts."""
    reference = _table_reference(comparison)
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
    """One table a shift: rows are policies, columns estimators."""
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
    """Every metric that has a value somewhere, with its tables and its paired differences."""
    valued = {cell.metric for cell in comparison.cells if cell.estimate.value is not None}
    return [
        {
            "facts": facts,
            "tables": _tables(comparison, facts.name),
            "differences": [found for found in comparison.differences if found.metric == facts.name],
        }
        for facts in comparison.metrics
        if facts.name in valued
    ]


def _shift_plots(comparison: Comparison, over: str | None) -> list[dict[str, Any]]:
    """For every judge, the main metric against the shift: its improvement, or for None itself."""
    metric = comparison.main_metric
    what = metric if over is None else f"improvement in {metric} over {over}"
    pictures = {
        (judge.name, told): shift_plot(comparison, judge.name, metric, over, names)
        for judge in comparison.judges
        for told, names in plotted_together(comparison).items()
    }
    return [
        {"title": f"{what}, judged by {judge}{told}", "svg": Markup(picture)}
        for (judge, told), picture in pictures.items()
        if picture is not None
    ]


def _table_reference(comparison: Comparison) -> str:
    """The lead reference; else the first, imitation before history."""
    return comparison.lead_reference or next(iter(references(comparison)), "")


def _improved_over(comparison: Comparison) -> str | None:
    """The lead reference; else random, or the easiest reference there is."""
    known = references(comparison)
    if comparison.lead_reference in known:
        return comparison.lead_reference
    return "random" if "random" in known else (known[-1] if known else None)


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

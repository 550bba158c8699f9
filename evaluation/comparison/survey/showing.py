"""Output of a survey: as JSON, as text, and as a page with figures."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from evaluation.comparison.report.pages import page_environment
from evaluation.comparison.report.plots import AXES_INK, COLOURS, styled_figure, svg_of
from evaluation.comparison.survey.survey import Aspect, DaySurvey

MAX_SHOWN = 120
"""Largest number of days in a figure; of more, days at even distances are shown."""
PARTS = {
    "arrivals": "time of arrival within the day",
    "mix": "requested services and sites",
    "run times": "run times of requests",
    "waits": "waits of requests",
    "nodes": "nodes of requests",
}


def to_json(found: DaySurvey) -> dict[str, Any]:
    """The survey as JSON values; distances between single days are on the page only."""
    return {
        "archive": found.archive,
        "days": [
            {"day": day.isoformat(), "requests": num}
            for day, num in zip(found.days, found.num_requests, strict=True)
        ],
        "aspects": {one.name: _aspect_json(one) for one in found.aspects},
        "stops_after_days": found.stops_after_days,
        "refit_after_days": found.refit_after_days,
        "verdict": verdict(found),
    }


def _aspect_json(one: Aspect) -> dict[str, Any]:
    return {
        "unit": one.unit,
        "limit": one.limit,
        "noise": _rounded(one.noise),
        "by_shift": [
            {
                "shift_days": at.shift_days,
                "pairs": at.num_pairs,
                "median": _rounded(at.median),
                "quartiles": [_rounded(at.low), _rounded(at.high)],
                "chance": _rounded(at.chance),
            }
            for at in one.by_shift
        ],
    }


def _rounded(value: float) -> float | None:
    return round(value, 5) if np.isfinite(value) else None


def verdict(found: DaySurvey) -> list[str]:
    """The verdict of the survey, as sentences."""
    cut = " and ".join(map(str, found.cut_off))
    return [
        *_on_refits(found),
        *([f"Arrivals of {cut} are left out: the log begins or ends there."] if cut else []),
    ]


def _on_refits(found: DaySurvey) -> list[str]:
    stops = {name: shift for name, shift in found.stops_after_days.items() if shift is not None}
    refits = {name: shift for name, shift in found.refit_after_days.items() if shift is not None}
    longest = max(at.shift_days for one in found.aspects for at in one.by_shift)
    if not stops:
        return [
            f"The median difference between days up to {longest} days apart is within the limits: no refit pays."
        ]
    first = min(stops.values())
    names = ", ".join(name for name, shift in stops.items() if shift == first)
    sentences = [
        f"The median difference between days exceeds a limit from {in_days(first)} apart on ({names})."
    ]
    if refits:
        pays = min(refits.values())
        names = ", ".join(name for name, shift in refits.items() if shift == pays)
        sentences.append(f"A refit pays from {in_days(pays)} on ({names}).")
    else:
        sentences.append(
            "A refit does not reduce the difference by more than the limits: consecutive days differ as much."
        )
    return sentences


def in_days(count: int) -> str:
    """Such as "1 day" or "7 days"."""
    return "1 day" if count == 1 else f"{count} days"


def as_text(found: DaySurvey, page: Path | None) -> str:
    """The survey as text for a terminal."""
    shifts = [shift for shift in (1, 2, 3, 7, 14, 30, 60) if shift <= (found.days[-1] - found.days[0]).days]
    lines = [
        f"{len(found.days)} days, {found.days[0]} to {found.days[-1]}, {sum(found.num_requests):,} requests",
        f"{'aspect':<10} {'unit':<8} {'limit':>6} {'noise':>6} "
        + " ".join(f"{in_days(shift):>8}" for shift in shifts),
    ]
    for one in found.aspects:
        medians = {at.shift_days: at.median for at in one.by_shift}
        cells = (f"{medians[shift]:8.3f}" if shift in medians else f"{'':>8}" for shift in shifts)
        lines.append(f"{one.name:<10} {one.unit:<8} {one.limit:6.2f} {one.noise:6.3f} " + " ".join(cells))
    lines += verdict(found)
    return "\n".join(lines if page is None else [*lines, f"page: {page}"])


def write_page(found: DaySurvey, path: Path) -> None:
    """Writes the self-contained page."""
    environment = page_environment("evaluation.comparison.survey")
    parts = [
        {
            "aspect": one,
            "about": PARTS[one.name],
            "stops": found.stops_after_days[one.name],
            "refit": found.refit_after_days[one.name],
            "days": Markup(_days_plot(found, one)),
        }
        for one in found.aspects
    ]
    path.write_text(
        environment.get_template("survey.html.j2").render(
            found=found,
            verdict=verdict(found),
            parts=parts,
            shifts=Markup(_shifts_plot(found)),
            in_days=in_days,
        ),
        encoding="utf-8",
    )


def _shifts_plot(found: DaySurvey) -> str:
    """Every aspect's distance against the shift, in multiples of its limit."""
    with styled_figure(found.archive, width=9.0, height=4.0, layout="constrained") as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        for one, colour in zip(found.aspects, COLOURS, strict=False):
            shift = [at.shift_days for at in one.by_shift]
            low, median, high = (
                [getattr(at, name) / one.limit for at in one.by_shift] for name in ("low", "median", "high")
            )
            axes.fill_between(shift, low, high, color=colour, alpha=0.15, linewidth=0.0)
            axes.plot(shift, median, color=colour, linewidth=1.8, marker="o", markersize=3.5, label=one.name)
        axes.axhline(1.0, color=AXES_INK, linewidth=1.2, linestyle="--")
        axes.set_xlabel("days between two days")
        axes.set_ylabel("distance / limit")
        axes.set_ylim(bottom=0.0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=10)
        return svg_of(figure)


def darkest(distance: np.ndarray) -> float:
    """Where the scale of a figure of days ends, in limits: above nearly all distances, so that far days differ, too."""
    known = distance[np.isfinite(distance)]
    return max(2.0, float(np.quantile(known, 0.95)) if known.size else 0.0)


def day_labels(days: Sequence[dt.date]) -> list[str]:
    """The days as short labels, with their years where these differ."""
    years = len({day.year for day in days}) > 1
    return [day.strftime("%b %d %Y" if years else "%b %d") for day in days]


def _days_plot(found: DaySurvey, one: Aspect) -> str:
    """An aspect's distance between every two days, in multiples of its limit."""
    from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

    shown = np.unique(np.linspace(0, len(found.days) - 1, MAX_SHOWN).round().astype(int))
    with styled_figure(one.name, width=4.6, height=3.9, layout="constrained") as figure:
        axes = figure.add_subplot()
        colours = LinearSegmentedColormap.from_list(
            "limit", ["#f4f7fa", "#8fc3e8", "#2A8FD0", "#D55E00", "#7a2c00"]
        ).with_extremes(bad="#888888")
        distance = one.distance[np.ix_(shown, shown)] / one.limit
        norm = TwoSlopeNorm(vmin=0.0, vcenter=1.0, vmax=(most := darkest(distance)))
        drawn = axes.imshow(distance, cmap=colours, norm=norm)
        ticks = np.unique(np.linspace(0, len(shown) - 1, 6).round().astype(int))
        names = day_labels([found.days[shown[tick]] for tick in ticks])
        axes.set_xticks(ticks, names, rotation=45, ha="right", fontsize=9)
        axes.set_yticks(ticks, names, fontsize=9)
        scale = np.unique([0.0, *np.linspace(1.0, most, 4).round()])
        figure.colorbar(drawn, ax=axes, label="distance / limit", extend="max", ticks=scale)
        return svg_of(figure)

"""What `bench orchestration` measured, as data and as a table."""

from collections.abc import Sequence
from typing import Any

from evaluation.comparison.bootstrap import Estimate
from evaluation.problems.orchestration.bench import MEASURES, OrchestrationBenchConfig, PairScore
from evaluation.simulator.world import World

_HEADINGS = {
    "on_time": "on time",
    "on_time_per_s": "on time / s",
    "scheduling_mib": "cost MiB / request",
    "pulled_mib": "images MiB / request",
    "energy_j": "J / request",
}


def as_json(world: World, config: OrchestrationBenchConfig, scores: Sequence[PairScore]) -> dict[str, Any]:
    """The scores as plain data: `rows` of dispatch, orchestration, day, and every measure with its interval."""
    return {
        "preset": world.name,
        "seeds": config.num_seeds,
        "days_per_seed": config.days_per_seed,
        "frames": config.num_frames,
        "changes_per_frame": config.frames.num_changes,
        "judge": "the simulated truth, by slots, from an empty midnight and the deployment of day 0",
        "rows": [_row(score) for score in scores],
    }


def _row(score: PairScore) -> dict[str, Any]:
    row: dict[str, Any] = {
        "dispatch": score.pair.dispatch,
        "orchestration": score.pair.orchestration,
        "day": score.day,
    }
    for name in MEASURES:
        row |= _interval(name, score.measures[name])
    return row | _interval("gain_over_static", score.gain)


def _interval(name: str, value: Estimate) -> dict[str, Any]:
    return {
        name: value.value,
        f"{name}_low": value.low,
        f"{name}_high": value.high,
        f"{name}_note": value.reason,
    }


def as_table(world: World, config: OrchestrationBenchConfig, scores: Sequence[PairScore]) -> Any:
    """The scores as a table for people."""
    from rich.table import Table

    title = (
        f"{world.name} by slots: {config.num_seeds} seeds of {config.days_per_seed} days each, "
        f"deployment of day 0, {config.frames.num_changes} changes a frame, 95 % intervals"
    )
    table = Table(title=title)
    for heading in ("day", "dispatch", "orchestration", *_HEADINGS.values(), "on time over static"):
        table.add_column(heading)
    for score in scores:
        cells = [_text(score.measures[name]) for name in _HEADINGS]
        table.add_row(str(score.day), *score.pair, *cells, _text(score.gain, signed=True))
    return table


def _text(value: Estimate, *, signed: bool = False) -> str:
    if value.value is None:
        return value.reason
    digits = 3 if abs(value.value) < 10.0 else 1
    sign = "+" if signed else ""
    shown = f"{value.value:{sign}.{digits}f}"
    if value.low is None or value.high is None:
        return shown
    return f"{shown} [{value.low:{sign}.{digits}f}, {value.high:{sign}.{digits}f}]"

"""Every log of an application forecast from every other: the table of `schedtwin bench forecasts`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from evaluation.problems.autoscaling.forecasts import (
    ForecastScore,
    forecast_scores,
    halves,
    refuse_other_interval,
)
from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from logs_schema.progress import Progress
from twin.autoscaling.scaling_log import ScalingLog, read_scaling_log

SIMPLE_COLUMNS = ("nearest neighbour", "log-linear", "persistence")
HEADER = (
    "from", "to", "quantity", "predictor", "intervals", "answered", "error", *SIMPLE_COLUMNS, "covered", "factor",
    "rank",
)  # fmt: skip


@dataclass(frozen=True)
class ForecastRow:
    """One quantity of one pair of logs."""

    learned_from: str
    forecast: str
    score: ForecastScore


def bench_forecasts(archives: Sequence[Path], progress: Progress) -> list[ForecastRow]:
    """Forecasts every archive from every other, or the later half of a single one from its first.

    Raises:
        ConfigError: Logs have intervals of different lengths.
        ArchiveError: An archive has no samples, or lacks a deployment of another.
    """
    found: list[ForecastRow] = []
    with progress.stage("forecasts", unit="pairs") as stage:
        for count, (source, target, log, other) in enumerate(_pairs(archives), 1):
            refuse_other_interval(log, other)
            found += [ForecastRow(source, target, score) for score in forecast_scores(log, other)]
            stage(count, text=f"{source} -> {target}")
    return found


def as_json(rows: Sequence[ForecastRow]) -> dict[str, Any]:
    """As plain JSON."""
    return {
        "rows": [
            {"learned_from": row.learned_from, "forecast": row.forecast, **asdict(row.score)} for row in rows
        ]
    }


def as_text(rows: Sequence[ForecastRow]) -> str:
    """The table, and what its columns mean."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    for row in rows:
        score = row.score
        cells = [
            row.learned_from, row.forecast, score.quantity, score.chosen, f"{score.num_intervals:,}",
            f"{score.answered:.2f}", _shown(score.error), *(_shown(score.errors[name]) for name in SIMPLE_COLUMNS),
            _shown(score.covered), _shown(score.factor, 1), _shown(score.rank, 2),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(
        [
            *lines,
            "error: mean absolute logarithm of forecast over logged, on the intervals that are answered; so are the "
            "simple models'. persistence sees the interval before. covered: answered intervals within their 95 % "
            "interval, whose ends stand a factor apart (median).",
        ]
    )


def _pairs(archives: Sequence[Path]) -> list[tuple[str, str, ScalingLog, ScalingLog]]:
    logs: dict[str, ScalingLog] = {}
    for name, path in zip(_names(archives), archives, strict=True):
        order = next(iter(logs.values())).deployments if logs else None
        logs[name] = read_scaling_log(Archive(path), None, order, whole=False)
    if len(logs) == 1:
        ((name, log),) = logs.items()
        return [(f"{name}, first half", f"{name}, later half", *halves(log))]
    return [(one, two, logs[one], logs[two]) for one, two in permutations(logs, 2)]


def _names(archives: Sequence[Path]) -> list[str]:
    """What archives are called: the last parts of their paths that tell them apart; ConfigError where one is twice."""
    paths = [path.resolve() for path in archives]
    if twice := sorted({str(path) for path in paths if paths.count(path) > 1}):
        raise ConfigError(f"{first(twice)}: the same log twice", where="ARCHIVE", allowed="every log once")
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _shown(value: float | None, places: int = 3) -> str:
    return "-" if value is None else f"{value:.{places}f}"

"""The main job as steps, each of which makes one product folder: archive, twin, policy, comparison, bundle.

The same functions serve the single commands and the resumable job.
"""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.comparing import Case, compare_case
from evaluation.comparison import Comparison
from evaluation.configuration import DaysConfig, JudgeConfig, RunConfig
from evaluation.progress import Progress
from evaluation.records import to_plain
from evaluation.shifts import ShiftConfig, choose_train_days, parse_shifts, plan_shifts
from evaluation.training import TrainingConfig, load_schedulers, save_schedulers, train_schedulers
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin, fit_twin


def build_twin(
    out: Path, archive_path: Path, days: DaysConfig, shifts: ShiftConfig, config: AnswerConfig, seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Fits a twin on the training days of an archive and writes it into `out`.

    Returns:
        Facts for the manifest: training days, fit.

    Raises:
        ConfigError: No training days, or too little in them to learn from.
    """
    archive = Archive(archive_path)
    train_days = choose_train_days(
        archive.days("requests"),
        largest_shift_days=max(parse_shifts(shifts.shifts)),
        first_day=days.first_day,
        last_day=days.last_day,
        num_days=days.num_days,
        tail_days=1,
    )  # fmt: skip
    encoding = fit_encoding(archive, train_days, granularity=days.granularity)
    with progress.stage(f"fit on {len(train_days)} days"):
        twin = fit_twin(
            jax.random.key(seed), archive, encoding, train_days, config, num_steps=days.num_steps
        )
    twin.save(out)
    best = np.nanmax(twin.report.held_out_log_likelihood, axis=0)
    return {
        "archive": archive.content_hash,
        "train_days": [day.isoformat() for day in train_days],
        "nodes": list(encoding.cluster.node_names),
        "decisions_name": "node classes" if encoding.by_class else "nodes",
        "num_train_offers": twin.report.num_train,
        "num_held_out_offers": twin.report.num_held_out,
        "held_out_log_likelihood": float(np.mean(best)),
        "num_carried_overflow": twin.windows.num_overflow,
    }


def build_policy(
    out: Path, twin_path: Path, config: TrainingConfig, seed: int, progress: Progress
) -> dict[str, Any]:
    """Trains the schedulers in a twin and writes them into `out`.

    Raises:
        ConfigError: The twin's log leaves a scheduler no choice.
    """
    twin = PlacementTwin.load(twin_path)
    if twin.encoding.cluster.num_nodes < 2:
        raise ConfigError(
            "this log leaves a scheduler no choice of node: there is only one",
            where=", ".join(twin.encoding.cluster.node_names),
            allowed="archives whose requests name one of at least two nodes or node classes",
        )
    schedulers = train_schedulers(jax.random.key(seed), twin, config, progress)
    save_schedulers(schedulers, twin, out)
    tail = max(1, schedulers.reward_curve.shape[1] // 5)
    return {
        "seeds": list(config.seeds),
        "reward_in_twin": schedulers.reward_curve[:, -tail:].mean(axis=1).round(6).tolist(),
        "kl_to_clone": schedulers.kl_curve[:, -1].round(6).tolist(),
    }


def build_comparison(
    out: Path,
    archive_path: Path,
    twin_path: Path,
    policy_path: Path | None,
    shifts: ShiftConfig,
    config: RunConfig,
    progress: Progress,
) -> dict[str, Any]:
    """Judges the policies on time-shifted days; writes `comparison.json` into `out`."""
    archive, twin = Archive(archive_path), PlacementTwin.load(twin_path)
    schedulers = load_schedulers(policy_path)[0] if policy_path is not None else None
    counts = {day: archive.num_rows("requests", day) for day in archive.days("requests")}
    plan = plan_shifts(counts, twin.encoding.train_days, shifts)
    case = Case(archive, twin, schedulers, plan, config.judge, config.intervals)
    comparison = compare_case(case, progress, facts=archive_facts(archive))
    (out / "comparison.json").write_text(json.dumps(comparison.to_json(), indent=1, allow_nan=False))
    return {"main_metric": comparison.main_metric}


def archive_facts(archive: Archive) -> dict[str, Any]:
    """What a report says about the archive."""
    days = archive.days("requests")
    return {
        "content_hash": archive.content_hash,
        "first_day": days[0].isoformat() if days else None,
        "last_day": days[-1].isoformat() if days else None,
        "num_days": len(days),
        "num_requests": archive.num_rows("requests"),
        "facts": to_plain(dict(archive.facts)),
    }


def load_comparison(folder: Path) -> Comparison:
    """The comparison in a product folder."""
    return Comparison.from_json(json.loads((folder / "comparison.json").read_text()))


__all__ = ["JudgeConfig", "Mapping", "asdict", "dt", "replace"]

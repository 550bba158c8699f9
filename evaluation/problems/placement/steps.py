"""The main job as steps, each of which makes one product folder: twin, policy, comparison.

The same functions serve the single commands and the resumable job.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.comparison.products import archive_facts, refuse_other_days, refuse_other_twin
from evaluation.comparison.report import write_comparison
from evaluation.comparison.training_days import (
    HOURS_UNSEEN,
    KEPT_BACK,
    hours_unseen_of,
    kept_back_of,
    plan_of,
    train_days_of,
)
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.choices import (
    NO_CHOICE,
    OWN_NODES,
    no_choice,
    own_nodes,
    refuse_no_choice,
    taken_for_one,
    untrainable,
)
from evaluation.problems.placement.comparing import COMPARISON_CODE, compare_case
from evaluation.problems.placement.dependences import dependences_of
from evaluation.problems.placement.encodings import encoding_of
from evaluation.problems.placement.judging_tasks import judge_ahead
from evaluation.problems.placement.reporting import (
    BESIDE_LOG,
    limits_of_training,
    make_report,
    warnings_of_training,
)
from evaluation.problems.placement.shifted import ShiftedTwins
from evaluation.problems.placement.spreading import spread_of
from logs_schema import Archive
from logs_schema.background import Background
from logs_schema.errors import ConfigError, first
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.ladder import rungs_of
from offline_rl.recipes.ladder_words import beside_the_log, in_words
from offline_rl.recipes.log_learners import tuned_as
from offline_rl.recipes.schedulers import load_schedulers, save_schedulers
from offline_rl.recipes.training import Contenders, TrainingStart, train_contenders, train_part
from twin.arrays import save_arrays
from twin.imitation.config import GameConfig
from twin.imitation.refining import imitated_twin
from twin.placement.encoding import Encoding
from twin.placement.model import PlacementTwin, fit_twin, load_encoding
from twin.population import PopulationConfig, learn_workload_model

POPULATION = "population"
"""Folder of the population within a twin's."""
CURVES = "game.npz"
"""File in a twin's folder: every evaluation of the adversarial game, if there was one."""
NO_GAME = GameConfig()
TWIN_CODE = 44
"""Raised when changes of the code change fits: those of older code are made again."""
POLICY_CODE = 33
"""Raised whenever the schedulers of a training become others, so that older ones are not taken for them."""


def build_twin(out: Path, archive_path: Path, config: RunConfig, progress: Progress) -> dict[str, Any]:
    """Fits a twin to the training days of an archive and writes it into `out`: answers and a population.

    A log that does not support a population gives a twin without one, with the reason in the facts. A killed fit or
    game is resumed.

    Returns:
        Facts for the manifest: training days, fit, population, and the adversarial game if there was one.

    Raises:
        ConfigError: No training days, or too few requests in them.
        ImitationError: Too few requests for the game, or it diverged.
    """
    archive, days, seed = Archive(archive_path), config.days, config.seed
    train_days = train_days_of(archive, days, config.shifts)
    fewer = kept_back_of(archive, train_days, days, config.shifts)
    unseen = hours_unseen_of(archive, train_days, plan_of(archive, train_days, config.shifts))
    for warned in filter(None, (fewer, unseen)):
        progress.note(f"warning: {warned}")
    with progress.stage("learn what is usual in the log"):
        encoding = encoding_of(archive, train_days, days)
    without = no_choice(archive, encoding, train_days)
    if without:
        progress.note(f"warning: {untrainable(without)}")
    bound = own_nodes(encoding)
    for told in filter(None, (bound, taken_for_one(archive, encoding, train_days))):
        progress.note(told)
    keep = _unfinished_fit(out, archive, encoding, config, progress)
    with progress.stage(f"fit on {len(train_days)} {'day' if len(train_days) == 1 else 'days'}"):
        twin = fit_twin(
            jax.random.key(seed),
            archive,
            encoding,
            train_days,
            config.twin,
            num_steps=days.num_steps,
            progress=progress,
            checkpoint=keep.folder and keep.folder / "answers.npz",
        )
    game: dict[str, Any] = {}
    if config.imitation.kind != NO_GAME.kind:
        twin, game = _play_game(out, twin, archive, config.imitation, seed, progress)
    twin.save(out)
    workload = _build_population(
        out / POPULATION, archive, train_days, config.population, seed, progress, keep.folder
    )
    keep.remove()
    best = np.nanmax(twin.report.held_out_log_likelihood, axis=0)
    return {
        "archive": archive.content_hash,
        "train_days_hash": archive.days_hash("requests", train_days),
        "train_days": [day.isoformat() for day in train_days],
        "nodes": list(encoding.cluster.node_names),
        "decisions_name": "node classes" if encoding.by_class else "nodes",
        "num_train_offers": twin.report.num_train,
        "num_held_out_offers": twin.report.num_held_out,
        "held_out_log_likelihood": float(np.mean(best)),
        "spread": spread_of(twin.report),
        "dependences": dependences_of(
            encoding.cluster,
            encoding.run_labels,
            encoding.run_habits,
            encoding.reported_ends,
            float(twin.report.run_share),
        ),
        "num_carried_overflow": twin.windows.num_overflow,
        "population": workload,
        **({KEPT_BACK: fewer} if fewer else {}),
        **({HOURS_UNSEEN: unseen} if unseen else {}),
        **({NO_CHOICE: without} if without else {}),
        **({OWN_NODES: bound} if bound else {}),
        **game,
    }


def _unfinished_fit(
    out: Path, archive: Archive, encoding: Encoding, config: RunConfig, progress: Progress
) -> Unfinished:
    made_from = {"days": archive.days_hash("requests", encoding.train_days)}
    settings = {
        "twin": config.twin,
        "days": config.days,
        "population": config.population,
        "encoding": encoding.to_json(),
        "code": TWIN_CODE,
    }
    return Unfinished.beside(out, "fit", made_from, settings, config.seed, progress=progress)


def _play_game(
    out: Path, twin: PlacementTwin, archive: Archive, config: GameConfig, seed: int, progress: Progress
) -> tuple[PlacementTwin, dict[str, Any]]:
    """The twin after the game, with its curves in `out`, and its entries in the manifest."""
    made_from = {"days": archive.days_hash("requests", twin.encoding.train_days)}
    settings = {
        "twin": asdict(twin.config),
        "game": asdict(config),
        "num_steps": twin.windows.num_steps,
        "encoding": twin.encoding.to_json(),
        "code": TWIN_CODE,
    }
    keep = Unfinished.beside(out, "game", made_from, settings, seed, progress=progress)
    checkpoint = None if keep.folder is None else keep.folder / CURVES
    with progress.stage("adversarial game", unit="steps") as stage:
        twin, played = imitated_twin(
            jax.random.key(seed),
            twin,
            archive,
            config,
            checkpoint=checkpoint,
            on_evaluation=lambda now: stage(
                now.step, text=f"held-out log likelihood {now.held_out_answers:.3f}"
            ),
        )
    save_arrays(out / CURVES, played.evaluations)
    keep.remove()
    progress.note(played.facts["in_words"])
    kept = played.facts["log_likelihood"]["kept"]
    return twin, {"imitation": played.facts, "held_out_log_likelihood": kept}


def _build_population(
    out: Path,
    archive: Archive,
    days: Sequence[dt.date],
    config: PopulationConfig,
    seed: int,
    progress: Progress,
    keep: Path | None,
) -> dict[str, Any]:
    key = jax.random.fold_in(jax.random.key(seed), 1)
    with progress.stage("population", unit="rounds") as stage:
        facts = learn_workload_model(
            key,
            archive,
            days,
            config,
            out,
            on_evaluation=lambda done, total, seen: stage(
                done, total, text=f"held-out KL of pairs {seen['held_out_pairs']:.3f}"
            ),
            checkpoint=keep and keep / "population.npz",
        )
    for name in ("refusal", "fallback"):
        if name in facts:
            progress.note(f"population: {facts[name]}")
    return facts


def build_policy(
    out: Path,
    twin_path: Path,
    config: RunConfig,
    progress: Progress,
    *,
    certification: Mapping[str, Any] | None = None,
    is_trusted: bool = True,
    begun: Background[Contenders] | None = None,
) -> dict[str, Any]:
    """Trains the schedulers in a twin and writes them into `out`.

    Unfinished parts are saved beside `out`, so that a killed training is resumed. The state of the twin's certificate
    goes into the manifest, for bundles and reports; in a twin that failed it (`is_trusted` false) small gains do not
    count in the ladder. `begun`: this very training, begun before by `starting.train_beside`.

    Raises:
        ConfigError: The twin's log leaves a scheduler no choice.
        ProductError: This is no twin.
    """
    if begun is None:
        contenders = contenders_of(out, twin_path, config, progress)
    else:
        with progress.stage("train (begun beside the certificate)"):
            contenders = begun.result()
    keep = _unfinished(out, twin_path, config)
    schedulers = contenders.ranked(progress, is_trusted=is_trusted, keep=keep.folder)
    save_schedulers(schedulers, PlacementTwin.load(twin_path), out)
    keep.remove()
    return {
        "seeds": list(config.train.seeds),
        "training_reward": [round(float(curve[-1]), 6) for curve in schedulers.reward_curve],
        "reward_with_held_out_member": [round(float(curve.max()), 6) for curve in schedulers.held_out_curve],
        "kl_to_clone": [round(float(curve[-1]), 6) for curve in schedulers.kl_curve],
        "ladder": in_words(schedulers.ladder, is_trusted=is_trusted),
        "rungs": rungs_of(schedulers.ladder),
        BESIDE_LOG: beside_the_log(schedulers.ladder),
        "tuned": {name: tuned_as(search) for name, search in schedulers.searches.items()},
        **(certification or {}),
    }


def contenders_of(
    out: Path,
    twin_path: Path,
    config: RunConfig,
    progress: Progress,
    begun: Background[TrainingStart] | None = None,
) -> Contenders:
    """All policies of a training, before one is chosen; `begun` as of `train_contenders`; raises as `build_policy`."""
    refuse_no_choice(twin_path)
    twin = PlacementTwin.load(twin_path)
    keep = _unfinished(out, twin_path, config, progress)

    def ahead(names: Sequence[str]) -> None:
        tasks = [
            TrainingTask(twin_path.absolute(), config.train, config.seed, keep.folder, name) for name in names
        ]
        keep.ahead(train_alone, tasks, "train", progress, [twin_path])

    key = jax.random.key(config.seed)
    return train_contenders(key, twin, config.train, progress, keep=keep.folder, ahead=ahead, begun=begun)


def _unfinished(
    out: Path, twin_path: Path, config: RunConfig, progress: Progress | None = None
) -> Unfinished:
    made_from = {"twin": read_manifest(twin_path, "twin").content_hash, "code": str(POLICY_CODE)}
    return Unfinished.beside(out, "policy", made_from, config.train, config.seed, config.engine, progress)


@dataclass(frozen=True)
class TrainingTask:
    """One part of a training as a task: path of the twin, configuration, and the folder for results."""

    twin: Path
    config: TrainingConfig
    seed: int
    folder: Path | None
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.twin}"


def train_alone(task: TrainingTask) -> None:
    """Trains one part and keeps it."""
    if task.folder is not None:
        train_part(
            jax.random.key(task.seed), PlacementTwin.load(task.twin), task.config, task.folder, task.name
        )


def build_comparison(
    out: Path,
    archive_path: Path,
    twin_path: Path,
    policy_path: Path | None,
    config: RunConfig,
    progress: Progress,
    *,
    title: str,
    policies: Mapping[str, UserPolicy] | None = None,
    judges: Mapping[str, UserJudge] | None = None,
    warnings: Sequence[str] = (),
    shifted: Background[ShiftedTwins] | None = None,
) -> dict[str, Any]:
    """Compares the policies on time-shifted days; writes `comparison.json`, `report.html`, `report.json` into `out`.

    Without a policy only those that need no training are compared. `policies` and `judges` are the user's own. Finished
    parts are saved beside `out` until all are done, so that a killed comparison is resumed. The report begins with
    `warnings`, and with a missing or failed certificate of the twin that was trained in. `shifted`: from `fit_beside`.
    """
    archive = Archive(archive_path)
    refuse_other_nodes(archive, twin_path)
    refuse_other_twin(policy_path, twin_path)
    twin = PlacementTwin.load(twin_path)
    schedulers = None if policy_path is None else load_schedulers(policy_path)[0]
    plan = plan_of(archive, twin.encoding.train_days, config.shifts)
    made_from = {"twin": twin_path} | ({} if policy_path is None else {"policy": policy_path})
    made = {name: read_manifest(path) for name, path in made_from.items()}
    hashes = {"archive": archive.content_hash} | {name: one.content_hash for name, one in made.items()}
    settings = settings_of_units(config, list(policies or {}))
    keep = Unfinished.beside(out, "comparison", hashes, settings, engine=config.engine, progress=progress)
    judge_ahead(archive_path, twin_path, policy_path, config, plan, policies or {}, keep, progress)
    case = Case(
        archive, twin, schedulers, plan, config.judge, config.intervals, policies or {}, judges or {}, keep,
        shifted=shifted,
    )  # fmt: skip
    comparison = compare_case(case, progress, facts=archive_facts(archive))
    with progress.stage("report"):
        report = make_report(title, comparison, archive_path, twin, schedulers, plan, config, hashes, made)
        told = [read_manifest(twin_path).extra.get(key) for key in (KEPT_BACK, HOURS_UNSEEN)]
        limits = [f"Training: {limit}." for limit in told if limit]
        if policy_path is not None:
            limits = [*limits_of_training(policy_path), *limits]
            warnings = [*warnings, *warnings_of_training(policy_path)]
        report = replace(report, limits=(*limits, *report.limits), warnings=tuple(warnings))
        facts = write_comparison(report, out)
    keep.remove()
    return facts


def settings_of_units(config: RunConfig, policies: Sequence[str]) -> dict[str, Any]:
    """What the units of a comparison depend on; off-policy estimates are kept with their intervals."""
    settings = {"shifts": config.shifts, "judge": config.judge, "intervals": config.intervals}
    return settings | {"policies": list(policies), "code": COMPARISON_CODE}


def refuse_other_nodes(archive: Archive, twin_path: Path) -> None:
    """Makes sure that an archive has the nodes that a twin's decisions name, and its days of training as they were.

    Raises:
        ConfigError: It has not.
        ProductError: This is no twin.
    """
    encoding, nodes = load_encoding(twin_path), archive.nodes()
    known = {*nodes["node_id"].to_pylist(), *nodes["node_class"].to_pylist()}
    there = {row for name, row in encoding.node_of_name.items() if name in known}
    missing = [name for row, name in enumerate(encoding.cluster.node_names) if row not in there]
    if missing:
        raise ConfigError(
            "the twin and the archive are of different nodes",
            where=f"unknown to the archive: {first(missing)}",
            allowed="an archive of the system that the twin was fitted on",
            advice="fit a twin on this archive",
        )
    refuse_other_days(archive, twin_path)

"""The main job as steps, each of which makes one product folder: archive, twin, policy, comparison, bundle.

The same functions serve the single commands and the resumable job.
"""

import datetime as dt
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.comparing import COMPARISON_CODE, Case, compare_case
from evaluation.comparison import Comparison
from evaluation.configuration import DaysConfig, RunConfig
from evaluation.judges.descriptions import TWIN_POLICY
from evaluation.judges.user_policies import UserPolicy
from evaluation.ordering.foreign import holds_training, refuse_other_pool
from evaluation.records import to_plain
from evaluation.report import write_report
from evaluation.reporting import make_report
from evaluation.shifts import ShiftConfig
from evaluation.spreading import spread_of
from evaluation.training_days import KEPT_BACK, kept_back_of, plan_of, train_days_of
from evaluation.unfinished import Unfinished
from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from logs_schema.product import Manifest, fingerprint, read_manifest
from logs_schema.progress import Progress
from offline_rl.export import export_policy, network_facts
from offline_rl.placement_contract import placement_contract
from offline_rl.recipes.schedulers import (
    best_seed,
    load_observed,
    load_schedulers,
    policy_params,
    save_schedulers,
)
from offline_rl.recipes.training import TrainingConfig, train_schedulers
from offline_rl.recipes.training_days import load_training_days
from twin.arrays import save_arrays
from twin.imitation.config import GameConfig
from twin.imitation.refining import imitated_twin
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin, fit_twin, load_encoding
from twin.population import PopulationConfig, learn_asking
from twin.problems import PLACEMENT, problem_of

POPULATION = "population"
"""Folder of the population within a twin's."""
CURVES = "game.npz"
"""File in a twin's folder: every look of the adversarial game, if one was played."""
NO_GAME = GameConfig()
POLICY_CODE = 6
"""Raised whenever the schedulers of a training become others, so that older ones are not taken for them."""
NO_CERTIFICATE = "trained in a twin without a certificate"


def build_twin(
    out: Path,
    archive_path: Path,
    days: DaysConfig,
    shifts: ShiftConfig,
    config: AnswerConfig,
    seed: int,
    progress: Progress,
    *,
    population: PopulationConfig,
    imitation: GameConfig = NO_GAME,
) -> dict[str, Any]:
    """Fits a twin on the training days of an archive and writes it into `out`: answers, and a population beside them.

    A log that does not support a population gives a twin without one; the facts say why. A game that was killed goes on
    where it was.

    Returns:
        Facts for the manifest: training days, fit, population, and the adversarial game if one was played.

    Raises:
        ConfigError: No training days, or too little in them to learn from.
        ImitationError: Too little for the game, or it diverged.
    """
    archive = Archive(archive_path)
    train_days = train_days_of(archive, days, shifts)
    fewer = kept_back_of(archive, train_days, days, shifts)
    if fewer:
        progress.note(f"warning: {fewer}")
    encoding = fit_encoding(archive, train_days, granularity=days.granularity, view=days.view)
    with progress.stage(f"fit on {len(train_days)} {'day' if len(train_days) == 1 else 'days'}"):
        twin = fit_twin(jax.random.key(seed), archive, encoding, train_days, config, num_steps=days.num_steps)
    game: dict[str, Any] = {}
    if imitation.kind != NO_GAME.kind:
        twin, game = _play_game(out, twin, archive, imitation, seed, progress)
    twin.save(out)
    asking = _build_population(out / POPULATION, archive, train_days, population, seed, progress)
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
        "num_carried_overflow": twin.windows.num_overflow,
        "population": asking,
        **({KEPT_BACK: fewer} if fewer else {}),
        **game,
    }


def _play_game(
    out: Path, twin: PlacementTwin, archive: Archive, config: GameConfig, seed: int, progress: Progress
) -> tuple[PlacementTwin, dict[str, Any]]:
    """The twin after the game, its curves in `out`, and what the manifest says of it."""
    made_from = {"days": archive.days_hash("requests", twin.encoding.train_days)}
    settings = {
        "twin": asdict(twin.config), "game": asdict(config), "num_steps": twin.windows.num_steps,
        "encoding": twin.encoding.to_json(),
    }  # fmt: skip
    wanted = fingerprint("game", made_from, settings, seed)
    unfinished = out.parent / f".unfinished-game-{wanted[:16]}.npz"
    with progress.stage("adversarial game", unit="steps") as stage:
        twin, played = imitated_twin(
            jax.random.key(seed), twin, archive, config, checkpoint=unfinished,
            on_look=lambda look: stage(look.step, text=f"held-out log likelihood {look.held_out_answers:.3f}"),
        )  # fmt: skip
    save_arrays(out / CURVES, played.looks)
    unfinished.unlink(missing_ok=True)
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
) -> dict[str, Any]:
    key = jax.random.fold_in(jax.random.key(seed), 1)
    with progress.stage("population", unit="rounds") as stage:
        facts = learn_asking(
            key, archive, days, config, out,
            on_look=lambda done, total, seen: stage(
                done, total, text=f"held-out KL of pairs {seen['held_out_pairs']:.3f}"
            ),
        )  # fmt: skip
    for name in ("refusal", "fallback"):
        if name in facts:
            progress.note(f"population: {facts[name]}")
    return facts


def build_policy(
    out: Path,
    twin_path: Path,
    config: TrainingConfig,
    seed: int,
    progress: Progress,
    *,
    certification: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains the schedulers in a twin and writes them into `out`.

    What is not finished is kept beside `out`, so that a killed training goes on where it was. What is known of the
    twin's certificate goes into the manifest as it is, for bundles and reports.

    Raises:
        ConfigError: The twin's log leaves a scheduler no choice.
        ProductError: This is no twin.
    """
    made_from = read_manifest(twin_path, "twin").content_hash
    twin = PlacementTwin.load(twin_path)
    if twin.encoding.cluster.num_nodes < 2:
        raise ConfigError(
            "this log leaves a scheduler no choice of node: there is only one",
            where=", ".join(twin.encoding.cluster.node_names),
            allowed="archives whose requests name one of at least two nodes or node classes",
        )
    wanted = fingerprint("policy", {"twin": made_from}, asdict(config), seed)
    unfinished = out.parent / f".unfinished-policy-{wanted[:16]}"
    schedulers = train_schedulers(jax.random.key(seed), twin, config, progress, keep=unfinished)
    save_schedulers(schedulers, twin, out)
    shutil.rmtree(unfinished, ignore_errors=True)
    return {
        "seeds": list(config.seeds),
        "training_reward": schedulers.reward_curve[:, -1].round(6).tolist(),
        "reward_with_member_kept_aside": schedulers.held_out_curve.max(axis=1).round(6).tolist(),
        "kl_to_clone": schedulers.kl_curve[:, -1].round(6).tolist(),
        **(certification or {}),
    }


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
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Judges the policies on time-shifted days; writes `comparison.json`, `report.html`, `report.json` into `out`.

    Without a policy only what needs no training is judged. `policies` are the user's own, beside ours. What is judged
    already is kept beside `out` until all is, so that a killed comparison goes on where it was. The report begins with
    `warnings`, and with the certificate of a twin that was trained in without having passed.
    """
    archive = Archive(archive_path)
    refuse_foreign(archive, twin_path)
    if policy_path is not None:
        refuse_foreign_policy(policy_path, twin_path)
    twin = PlacementTwin.load(twin_path)
    schedulers = load_schedulers(policy_path)[0] if policy_path is not None else None
    plan = plan_of(archive, twin.encoding.train_days, config.shifts)
    hashes = {"archive": archive.content_hash}
    hashes |= {
        name: read_manifest(path).content_hash
        for name, path in (("twin", twin_path), ("policy", policy_path))
        if path is not None
    }
    settings = {"shifts": config.shifts, "judge": config.judge, "policies": list(policies or {})}
    keep = Unfinished.beside(out, "comparison", hashes, settings | {"code": COMPARISON_CODE})
    case = Case(archive, twin, schedulers, plan, config.judge, config.intervals, policies or {}, keep)
    comparison = compare_case(case, progress, facts=archive_facts(archive))
    (out / "comparison.json").write_text(json.dumps(comparison.to_json(), indent=1, allow_nan=False))
    with progress.stage("report"):
        report = make_report(title, comparison, archive_path, twin, schedulers, plan, config, hashes)
        said = [f"Training: {few}."] if (few := read_manifest(twin_path).extra.get(KEPT_BACK)) else []
        if policy_path is not None:
            said = [training_in_words(policy_path), *said]
            if not in_certified_twin(policy_path):
                warnings = [*warnings, f"{said[0]} A bundle of them is for shadow mode at most."]
        report = replace(report, limits=(*said, *report.limits), warnings=tuple(warnings))
        write_report(report, out)
    keep.remove()
    return {"main_metric": comparison.main_metric}


def training_in_words(policy_path: Path) -> str:
    """What the report says about the certificate of the twin that the policies were trained in."""
    return f"The policies were {trained_in(read_manifest(policy_path, 'policy'))['certification']}."


def in_certified_twin(policy_path: Path) -> bool:
    """Whether the twin that a policy was trained in had passed its certificate."""
    return read_manifest(policy_path, "policy").extra.get("certificate") is not None


def trained_in(manifest: Manifest) -> dict[str, Any]:
    """The twin that a policy was trained in (its content hash), and what is known of the twin's certificate."""
    words = str(manifest.extra.get("certification", NO_CERTIFICATE))
    return {"twin": manifest.made_from.get("twin"), "certification": words}


def refuse_foreign(archive: Archive, twin_path: Path) -> None:
    """Makes sure that a twin belongs to an archive.

    Raises:
        ConfigError: The archive lacks a node that the twin's decisions name, is of another machine than a queue's twin,
            or holds other requests on training days.
        ProductError: This is no twin.
    """
    facts = read_manifest(twin_path, "twin").extra
    if problem_of(twin_path) == PLACEMENT:
        _refuse_foreign_nodes(archive, twin_path)
    else:
        refuse_other_pool(archive, twin_path, facts)
    train_days = [dt.date.fromisoformat(day) for day in facts["train_days"]]
    is_held = holds_training(archive, train_days)
    if is_held and archive.days_hash("requests", train_days) != facts.get("train_days_hash"):
        raise ConfigError(
            "the twin was fitted on another archive",
            where=f"{twin_path}: requests of the training days {train_days[0]} to {train_days[-1]} differ",
            allowed="the archive of the fit, as it was or with days added",
            advice="fit a twin on this archive",
        )


def _refuse_foreign_nodes(archive: Archive, twin_path: Path) -> None:
    known = set(archive.nodes()["node_id"].to_pylist()) | set(archive.nodes()["node_class"].to_pylist())
    missing = [name for name in load_encoding(twin_path).cluster.node_names if name not in known]
    if missing:
        raise ConfigError(
            "the twin and the archive do not speak of the same nodes",
            where=f"unknown to the archive: {first(missing)}",
            allowed="an archive of the system that the twin was fitted on",
            advice="fit a twin on this archive",
        )


def refuse_foreign_policy(policy_path: Path, twin_path: Path) -> None:
    """Makes sure that a policy was trained in a twin.

    Raises:
        ConfigError: It was trained in another one.
        ProductError: One of them is of another kind.
    """
    own = read_manifest(policy_path, "policy").made_from.get("twin")
    problems = problem_of(policy_path), problem_of(twin_path)
    if problems[0] != problems[1]:
        what = f"the policy is of the problem '{problems[0]}', the twin of '{problems[1]}'"
    elif (
        problems[0] == PLACEMENT
        and load_encoding(policy_path).to_json() != load_encoding(twin_path).to_json()
    ):
        what = "the policy was trained for other nodes, features or days than the twin's"
    elif own != read_manifest(twin_path, "twin").content_hash:
        what = "the policy was trained in another twin"
    else:
        return
    raise ConfigError(
        what,
        where=f"policy {policy_path}, twin {twin_path}",
        allowed="a policy and the very twin it was trained in",
        advice=f"schedtwin train {twin_path} --out POLICY",
    )


def build_bundle(
    out: Path,
    policy_path: Path,
    *,
    policy: str = TWIN_POLICY,
    seed: int | None = None,
    licence: str | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Exports a policy, named as in comparisons, as the bundle `out`: of the seed asked for, or the best in the twin.

    Raises:
        ConfigError: No such policy or seed.
        ProductError: This is no policy, or the exported copies do not decide as it does.
    """
    manifest = read_manifest(policy_path, "policy")
    schedulers, encoding = load_schedulers(policy_path)
    seeds = list(manifest.extra["seeds"])
    chosen = best_seed(schedulers, seeds) if seed is None else seed
    if chosen not in seeds:
        raise ConfigError(f"there is no policy of seed {chosen}", allowed=", ".join(map(str, seeds)))
    params = policy_params(schedulers, policy, seeds.index(chosen))
    days = load_training_days(policy_path)
    contract = placement_contract(
        encoding,
        network_facts(params),
        ranges=None if days is None else (days.low, days.high),
        alarm=None if days is None else days.alarm,
        trained_on=trained_in(manifest),
        certificate=manifest.extra.get("certificate"),
        licence=licence,
    )
    export_policy(
        params,
        out,
        contract,
        observed=load_observed(policy_path),
        made_from={"policy": manifest.content_hash},
        seed=chosen,
        extra={
            "train_days": [day.isoformat() for day in encoding.train_days],
            "seed_chosen_by": "value in the twin" if seed is None else "the user",
            "policy": policy,
        },
        replace=replace,
    )
    return {"seed": chosen, "policy": policy}


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

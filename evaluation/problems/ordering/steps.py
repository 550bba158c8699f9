"""The single steps of the ordering problem after fit and certify: train in a queue's twin, compare, export.

They are the parts of `schedtwin order` with one anchor, the end of the twin's training days.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.products import load_comparison, refuse_other_twin, remarks_on_training, trained_in
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import OrderConfig, RunConfig, WeeksConfig
from evaluation.problems.ordering.config import ORDER_CODE, as_settings
from evaluation.problems.ordering.exported_order import Winner, winner_of, winner_of_ladder
from evaluation.problems.ordering.exporting import QueueBundle, export_order, export_rule, index_scorer
from evaluation.problems.ordering.feature_ranges import load_ranges, logged_ranges, save_ranges
from evaluation.problems.ordering.fixed_orders import fixed_order, is_by_predictions
from evaluation.problems.ordering.judging import TrainedOrders, compare_queue
from evaluation.problems.ordering.ladder import CHOOSING, ChosenOrder, choice_at
from evaluation.problems.ordering.learned_orders import Learned
from evaluation.problems.ordering.playing import EASY
from evaluation.problems.ordering.reporting import write_order_report
from evaluation.problems.ordering.running import kept_index, train_anchors
from evaluation.problems.ordering.same_machine import refuse_other_pool
from logs_schema.archive import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.layout import date_of
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest, verify
from logs_schema.progress import Progress
from logs_schema.records import to_plain
from logs_schema.settings import build
from offline_rl.ordering.index import some_index
from offline_rl.ordering.index_scorer import scorer_of
from offline_rl.ordering.learning import samples_before
from offline_rl.ordering.programs import OrderTrainingConfig, judged_config
from offline_rl.ordering.tables import with_tables
from twin.arrays import load_structure, save_arrays
from twin.contracts import PyTree
from twin.ordering.persistence import load_queue_twin, tick_of
from twin.ordering.types import Pool
from twin.problems import KEY, ORDERING, refuse_other_problem

NOT_COMPARED = "the index, compared with no rule: compare it, and export with --comparison"
LEARNED, SETTINGS, CHOICE = "learned.npz", "training.json", "ladder"


def training_of(config: RunConfig) -> OrderTrainingConfig:
    """Configuration of the training: [order.training] where there is an [order], else index and clone, without PPO;
    seeds follow `seed`.

    Raises:
        ConfigError: the configuration trains nothing, for rules only.
    """
    found = OrderTrainingConfig(num_ppo_seeds=0) if config.order is None else config.order.training
    if found is None:
        raise ConfigError("the configuration trains nothing", where="[order]", advice="add [order.training]")
    return replace(found, seeds=tuple(1000 * config.seed + seed for seed in found.seeds))


def build_queue_policy(
    out: Path,
    twin_path: Path,
    config: OrderTrainingConfig,
    progress: Progress,
    *,
    certification: Mapping[str, Any],
    weeks: WeeksConfig,
) -> dict[str, Any]:
    """Trains orders in the twin of a queue, chooses among them and the rules in past weeks, and writes them into `out`.

    Args:
        out: folder to write into.
        twin_path: path of the twin, the only input of the training.
        config: configuration of the training; its ticks become those that fit the log.
        progress: progress display.
        certification: state of the twin's certificate, for the manifest.
        weeks: for how past weeks drain.

    Returns:
        Facts for the manifest; `ladder` holds the best rule, the order that the ladder chose, and why.

    Raises:
        ProductError: this is no twin of a queue.
        OrderingError: too few jobs ended on the training days.
    """
    twin = load_queue_twin(twin_path)
    config = replace(config, tick_s=tick_of(twin))
    made_from = {"twin": read_manifest(twin_path, "twin").content_hash}
    keep = Unfinished.beside(
        out, "policy", made_from, {"training": config, "code": ORDER_CODE}, progress=progress
    )
    notes: list[str] = []
    if config.index_only:
        samples = cache(partial(samples_before, twin.past, twin.pool, twin.anchor, twin.num_days))
        with progress.stage("learn"):
            found = [kept_index(keep, 0, seed, samples) for seed in config.seeds]
        learned = Learned((), tuple(index for index, _ in found), ())
        losses = tuple(loss for _, loss in found)
    else:
        config = with_tables(config, twin.past, twin.pool)
        _, (learned,), (losses,), notes = train_anchors(
            twin.past,
            [twin.population],
            (twin.anchor,),
            twin.pool,
            config,
            twin.num_days,
            progress,
            None,
            keep,
        )
    save_arrays(out / LEARNED, learned)
    with progress.stage(CHOOSING):
        chosen = choice_at(twin.past, twin.pool, twin.anchor, twin.num_days, weeks, config.seeds[0])
    problem = judged_config(config)
    save_ranges(logged_ranges(twin.past, twin.pool, problem, twin.anchor, twin.num_days), out)
    keep.remove()
    plain = {name: value for name, value in to_plain(config).items() if value is not None}
    settings = {"training": plain, "processors": twin.pool.processors, **twin.pool.described}
    (out / SETTINGS).write_text(json.dumps(settings, indent=1))
    return {
        KEY: ORDERING,
        "seeds": list(config.seeds),
        "losses": [round(loss, 6) for loss in losses],
        "first_day": date_of(twin.first_day).isoformat(),
        "last_day": date_of(twin.anchor - 1).isoformat(),
        "num_days": twin.num_days,
        "notes": notes,
        CHOICE: None if chosen is None else chosen._asdict(),
        **twin.pool.described,
        **certification,
    }


def load_queue_policy(folder: Path) -> TrainedOrders:
    """Reads what `build_queue_policy` wrote.

    Raises:
        ProductError: this is no policy, one of the other problem, a damaged or an older one.
    """
    refuse_other_problem(folder, ORDERING)
    verify(folder, "policy")
    try:
        settings = json.loads((folder / SETTINGS).read_text())
        config = build(OrderTrainingConfig, settings["training"], str(folder / SETTINGS))
        pool = Pool(float(settings["processors"]), name=settings.get("pool"))
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise ProductError(
            f"the policy cannot be read: {error}",
            where=str(folder / SETTINGS),
            allowed="a policy of this version of schedtwin",
            advice="train again",
        ) from error
    index = some_index()
    scorer: PyTree = scorer_of(index, pool)
    num_trained = 0 if config.index_only else min(config.num_ppo_seeds, len(config.seeds))
    clone = () if config.index_only else scorer
    structure = Learned(clone, (index,) * len(config.seeds), (scorer,) * num_trained)
    facts = read_manifest(folder).extra
    best, notes = int(np.argmin(facts["losses"])), tuple(facts["notes"])
    if CHOICE not in facts:
        raise ProductError(
            "the policy holds no choice among rules and index",
            where=str(folder),
            allowed="a policy of this version of schedtwin",
            advice="train again",
        )
    chosen = None if facts[CHOICE] is None else ChosenOrder(**facts[CHOICE])
    return TrainedOrders(load_structure(folder / LEARNED, structure), best, config, pool, notes, chosen)


def build_queue_comparison(
    out: Path,
    archive_path: Path,
    twin_path: Path,
    policy_path: Path | None,
    config: RunConfig,
    progress: Progress,
    *,
    title: str,
    users: Mapping[str, UserPolicy],
    judges: Mapping[str, UserJudge] | None = None,
) -> dict[str, Any]:
    """Compares orders on the days after a twin's training days; writes `comparison.json` and the report into `out`.

    Raises:
        ConfigError: twin, policy and archive do not belong together, or the log ends too soon.
        ProductError: one of them is of another kind, or damaged.
    """
    archive = Archive(archive_path)
    refuse_other_pool(archive, twin_path)
    refuse_other_twin(policy_path, twin_path)
    policy = None if policy_path is None else load_queue_policy(policy_path)
    twin = load_queue_twin(twin_path)
    paths = {"archive": archive_path, "twin": twin_path, "policy": policy_path}
    hashes = {name: content_hash_of(path) for name, path in paths.items() if path is not None}
    order = None if config.order is None else as_settings(config.order, "weeks", "num_twin_weeks")
    played = {"shifts": config.shifts, "order": order, "code": ORDER_CODE}
    keep = Unfinished.beside(out, "comparison", hashes, played, progress=progress)
    comparison, weeks = compare_queue(
        archive, twin, config, progress, policy=policy, users=users, judges=judges, keep=keep
    )
    intervals = (config.order or OrderConfig()).intervals
    settings = {"weeks": to_plain(weeks), "intervals": to_plain(intervals)}
    limits, warnings = remarks_on_training(policy_path)
    facts = write_order_report(out, archive, comparison, title, settings, hashes, limits, warnings)
    keep.remove()
    return facts


def build_queue_bundle(
    out: Path,
    policy_path: Path,
    *,
    seed: int | None = None,
    rule: str | None = None,
    comparison_path: Path | None = None,
    licence: str | None = None,
    replace_old: bool = False,
) -> dict[str, Any]:
    """Exports what the ladder of the training chose as the bundle `out`, or one seed's index, or a rule for the pool.

    Args:
        out: folder of the bundle.
        policy_path: of the policy.
        seed: seed of an index to export in its place; an index that the ladder or a comparison chose is the one with
            the best predictions of held-out jobs.
        rule: name of a rule to export in its place.
        comparison_path: a comparison of this policy, which may prefer another order than the ladder of the training.
        licence: licence of the bundle.
        replace_old: whether an older bundle may be replaced.

    Returns:
        `seed`, None of a rule, and a description of the exported order (`chosen`).

    Raises:
        ConfigError: no such seed, no such rule, or a comparison of something else.
        ProductError: this is no policy of a queue, or the exported copies do not decide as it does.
    """
    policy, manifest = load_queue_policy(policy_path), read_manifest(policy_path, "policy")
    seeds, facts = policy.config.seeds, manifest.extra
    if rule is not None and seed is not None:
        raise ConfigError("a rule has no seed", where="--rule, --seed", advice="name one of them")
    if rule is not None and comparison_path is not None:
        raise ConfigError(
            "a rule that is named is exported whatever a comparison found",
            where="--rule, --comparison",
            advice="name one of them",
        )
    comparison = None
    if comparison_path is not None:
        _refuse_other_comparison(comparison_path, manifest.content_hash)
        comparison = load_comparison(comparison_path)
    winner = winner_to_export(policy.chosen, rule=rule, seed=seed, comparison=comparison)
    if winner.rule is not None and seed is not None:
        raise ConfigError(
            f"the comparison chose {winner.rule}, which has no seed",
            where="--seed, --comparison",
            advice="leave --seed out, or --comparison for the index of that seed",
        )
    words, stand_in = winner.words, None if winner.fallback is None else fixed_order(winner.fallback)
    trained_on = {name: facts[name] for name in ("first_day", "last_day", "num_days")}
    trained_on |= {"chosen": words} | policy.pool.described
    bundle = QueueBundle(
        policy.pool,
        policy.config,
        trained_on,
        {"policy": manifest.content_hash},
        licence,
        replace_old,
        fallback=stand_in,
    )
    if winner.rule is not None:
        export_rule(fixed_order(winner.rule), out, bundle)
        return {"seed": None, "chosen": words}
    place = int(np.argmin(facts["losses"]))
    if seed is not None and seed not in seeds:
        raise ConfigError(f"there is no index of seed {seed}", allowed=", ".join(map(str, seeds)))
    place = place if seed is None else seeds.index(seed)
    export_order(
        index_scorer(policy.learned.indices[place], policy.pool, winner.exponents),
        out,
        bundle._replace(trained_on=trained_on | trained_in(manifest), ranges=load_ranges(policy_path)),
        seed=seeds[place],
        certificate=facts.get("certificate"),
    )
    return {"seed": seeds[place], "chosen": words}


def winner_to_export(
    chosen: ChosenOrder | None,
    *,
    rule: str | None = None,
    seed: int | None = None,
    comparison: Comparison | None = None,
) -> Winner:
    """The named rule, else what a comparison or the training's ladder chose; a seed stands for an index."""
    fallback = None if chosen is None else chosen.rule
    if rule is not None:
        name = rule if rule.endswith(EASY) or is_by_predictions(rule) else f"{rule}{EASY}"
        return Winner(name, f"the rule {name}, as requested", fallback)
    if comparison is not None:
        return winner_of(comparison)
    if chosen is None:
        return Winner(None, NOT_COMPARED)
    why = chosen.words.removeprefix(f"{chosen.order}: ")
    winner = winner_of_ladder(chosen.order, chosen.rule, why)
    if seed is None:
        return winner
    return winner._replace(rule=None, words=f"the index of seed {seed}, as requested")


def _refuse_other_comparison(path: Path, policy_hash: str) -> None:
    """Makes sure that a comparison judged a policy; ConfigError."""
    judged = read_manifest(path, "comparison").made_from.get("policy")
    if judged != policy_hash:
        raise ConfigError(
            "the comparison judged another policy",
            where=str(path),
            allowed="schedtwin compare ARCHIVE TWIN POLICY",
            advice="compare this policy, or leave the comparison out",
        )

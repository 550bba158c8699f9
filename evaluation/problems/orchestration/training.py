"""A dispatcher and an orchestrator for a cluster: each trained in its twin from a rule, kept where it surely beats it.

The numbers of the planned deployment are tuned in the twin first; what is learned corrects the tuned plan.

The product holds both policies' parameters and the twin's tables, which both of them read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.products import trained_in
from evaluation.comparison.seeds import over_seeds
from evaluation.problems.orchestration.pairs import pair_program
from evaluation.problems.orchestration.references import PLANNED, PLANNED_TUNED
from evaluation.problems.orchestration.rivals import CENTRAL_RULE
from evaluation.problems.orchestration.trained import (
    DISPATCHER,
    GPG,
    IN_ONE_PLACE,
    LEARNED,
    ORCHESTRATOR,
    plan_of_training,
    read_networks,
)
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.orchestration.config import TrainingBudget
from offline_rl.orchestration.stepwise_actor import stepwise_policy
from offline_rl.orchestration_export import Plan, export_pair
from offline_rl.recipes.slot_learners import RESIDUAL, RESIDUAL_CENTRAL, SMALL, residual
from offline_rl.recipes.slot_training import (
    TrainedDispatch,
    TrainedOrchestration,
    dispatch_example,
    orchestrating,
    shown_plan,
    train_both,
    tuned_plan,
)
from offline_rl.rules.orchestration.expected_on_time import RULE_MARGIN, dispatch_rule, rule_params
from offline_rl.rules.orchestration.planned import ADVICE, PlannedConfig, planned
from offline_rl.rules.orchestration.tuned_plan import numbers_of
from twin.arrays import save_arrays
from twin.orchestration.centralised import centrally
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_mechanics import observing
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.persistence import load_fitted, save_fitted
from twin.problems import KEY, ORCHESTRATION

NUM_TRIALS, TRIAL_SEED = 8, 11
"""Runs of the twin in which policies are tried, and where their chance begins."""


def build_policy(
    out: Path, fitted: FittedCluster, budget: TrainingBudget, seed: int, progress: Progress, keep: Path | None
) -> dict[str, Any]:
    """Trains both sides, tries them in fresh frames of the twin, writes the best pair; facts of the product.

    Killed and called again with the same `keep`, a folder for what is not finished, training goes on from there.
    """
    learner = RESIDUAL if budget.delay_s is None else RESIDUAL_CENTRAL
    plan = tuned_plan(fitted, budget, seed, progress, keep)
    dispatch, orchestration = train_both(learner, GPG, fitted, budget, seed, progress, keep, plan)
    with progress.stage("try in the twin"):
        tried = tried_pairs(fitted, dispatch, orchestration, plan, budget.num_trial_frames)
    best = chosen_pair(tried)
    dispatcher, orchestrator = best.split("+")
    key = jax.random.key(seed)  # what is not trained is the rule itself
    delay_s = budget.delay_s if dispatcher in IN_ONE_PLACE else None
    rule = residual(dispatch_example(fitted), rule_params(fitted, delay_s or 0.0)).network.init(key)
    save_arrays(out / DISPATCHER, dispatch.params if dispatcher == learner else rule)
    save_arrays(
        out / ORCHESTRATOR,
        orchestration.state.actor if orchestrator == GPG else orchestration.network.init(key),
    )
    save_fitted(out, fitted)
    means = {name: float(np.mean(runs)) for name, runs in tried.items()}
    found = {
        "tried": means,
        "chosen": best,
        "gain_at_least": _gain(tried, best, next(iter(tried))).low,
        "seed": seed,
        "plan": numbers_of(ADVICE if orchestrator == PLANNED else plan),
    }
    return found | ({} if budget.delay_s is None else {"delay_s": budget.delay_s})


def chosen_pair(tried: Mapping[str, np.ndarray]) -> str:
    """The first pair, which is made of rules, unless others are better with confidence; of those the best in the mean.

    Rules are looked at first: what is learned must be surely better than the best of them.

    Args:
        tried: Pair -> what it reached in each of some runs, paired by run.
    """
    held = next(iter(tried))
    for is_learned in (False, True):
        kind = [name for name in tried if LEARNED.isdisjoint(name.split("+")) != is_learned]
        gains = {name: _gain(tried, name, held) for name in kind if name != held}
        sure = {
            name: one.value or 0.0 for name, one in gains.items() if one.low is not None and one.low > 0.0
        }
        held = max(sure, key=lambda name: sure[name]) if sure else held
    return held


def _gain(tried: Mapping[str, np.ndarray], name: str, over: str) -> Estimate:
    """What a pair reached over another."""
    return over_seeds((tried[name] - tried[over]).tolist())


def tried_pairs(
    fitted: FittedCluster,
    dispatch: TrainedDispatch,
    orchestration: TrainedOrchestration,
    plan: PlannedConfig,
    num_frames: int,
) -> dict[str, np.ndarray]:
    """Pair -> [runs] share of requests answered in time in frames of the twin; first the rules of access points.

    `plan` is what the orchestrator corrects; it is tried itself where it is not the plan as it stands.
    """
    edge, frames, delay_s = fitted.edge, fitted.frames, dispatch.delay_s
    corrected = stepwise_policy(orchestration.network, orchestration.state.actor, draws=False)
    dispatchers = {EXPECTED_ON_TIME: observing(edge, dispatch_rule(fitted))}
    late_s: dict[str, float] = {}
    if delay_s is None:
        dispatchers[RESIDUAL] = observing(edge, dispatch.policy())
    else:
        late_s = dict.fromkeys(IN_ONE_PLACE, delay_s)
        dispatchers[CENTRAL_RULE] = centrally(edge, dispatch_rule(fitted, delay_s))
        dispatchers[RESIDUAL_CENTRAL] = centrally(edge, dispatch.policy())
    begin_s = jnp.linspace(0.0, 0.8 * float(fitted.tables.day_s), NUM_TRIALS)
    plans = {PLANNED: ADVICE} | ({} if plan == ADVICE else {PLANNED_TUNED: plan})
    forecast = learned_forecast(edge, fitted.tables)
    orchestrators = {
        **{name: planned(edge, forecast, frames, one, begin_s=begin_s) for name, one in plans.items()},
        GPG: orchestrating(shown_plan(fitted, edge, frames, begin_s, plan=plan), corrected),
    }
    program = pair_program(
        edge,
        learned_chance(edge, fitted.tables, begin_s),
        frames,
        list(dispatchers.values()),
        list(orchestrators.values()),
        num_frames,
        (NUM_TRIALS,),
    )
    found = {}
    for row, dispatcher in enumerate(dispatchers):
        for column, orchestrator in enumerate(orchestrators):
            kinds = jnp.int32(row), jnp.int32(column)
            counts = program(jax.random.key(TRIAL_SEED), *kinds, jnp.float32(late_s.get(dispatcher, 0.0)))
            share = np.asarray(counts.on_time, np.float64) / np.maximum(np.asarray(counts.arrived), 1)
            found[f"{dispatcher}+{orchestrator}"] = share
    return found


def export_bundle(out: Path, policy: Path, *, licence: str | None, replace: bool) -> dict[str, Any]:
    """Both policies of a training as a bundle; facts for the command."""
    manifest, fitted = read_manifest(policy, "policy"), load_fitted(policy)
    edge, extra = fitted.edge, manifest.extra
    plan = Plan(edge, fitted.frames, learned_forecast(edge, fitted.tables), plan_of_training(extra))
    dispatcher, orchestrator = (one.params for one in read_networks(policy, fitted))
    in_one_place = extra["chosen"].split("+")[0] in IN_ONE_PLACE
    facts = {
        "policy": extra["chosen"],
        "seed": extra["seed"],
        "train_days": extra["train_days"],
        KEY: ORCHESTRATION,
    }
    trained_on = {"days": extra["train_days"], "tried": extra["tried"], **trained_in(manifest)}
    export_pair(
        dispatcher, orchestrator, plan, SMALL, out, margin=RULE_MARGIN, trained_on=trained_on,
        delay_s=extra["delay_s"] if in_one_place else None,
        certificate=extra.get("certificate"), licence=licence,
        seed=extra["seed"], made_from={"policy": manifest.content_hash}, extra=facts, replace=replace,
    )  # fmt: skip
    return facts

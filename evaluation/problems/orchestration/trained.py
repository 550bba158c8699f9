"""The product of a training of dispatcher and orchestrator: its networks, and its pair in comparisons."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from evaluation.problems.orchestration.bench import STATIC, Entrants, Pair
from evaluation.problems.orchestration.references import PLANNED, PLANNED_TUNED
from evaluation.problems.orchestration.rivals import CENTRAL, CENTRAL_RULE, central_rivals, planner_with
from logs_schema.product import read_manifest
from offline_rl.networks import near_best_policy
from offline_rl.orchestration.stepwise_actor import stepwise_policy
from offline_rl.recipes.slot_learners import RESIDUAL, RESIDUAL_CENTRAL, residual
from offline_rl.recipes.slot_training import corrected_plan, dispatch_example, orchestrating, shown_plan
from offline_rl.rules.orchestration.expected_on_time import RULE_MARGIN, rule_params
from offline_rl.rules.orchestration.planned import PlannedConfig
from offline_rl.rules.orchestration.tuned_plan import with_numbers
from twin.arrays import load_arrays
from twin.contracts import PyTree
from twin.orchestration.centralised import centrally
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.persistence import load_fitted

DISPATCHER, ORCHESTRATOR = "dispatcher.npz", "orchestrator.npz"
GPG = "gpg"
LEARNED = frozenset({RESIDUAL, RESIDUAL_CENTRAL, GPG})
"""Sides of a pair that are no rules."""
IN_ONE_PLACE = (CENTRAL_RULE, RESIDUAL_CENTRAL)
"""Dispatchers of a training that decide in one place."""


class KeptNetwork(NamedTuple):
    """A network and its parameters; those of the rule that it would correct, where the rule was chosen."""

    network: Any
    params: PyTree


class TrainedPair(NamedTuple):
    """What a training has chosen, as a comparison plays it.

    Attributes:
        pair: Names of both sides.
        entrants: Those of them that are no baselines.
        rivals: Who stands beside it: what dispatches in one place as late as this training's decisions may come.
    """

    pair: Pair
    entrants: Entrants
    rivals: tuple[Pair, ...] = ()

    @property
    def is_learned(self) -> bool:
        """Whether a side of it is no rule."""
        return not LEARNED.isdisjoint(self.pair)


def plan_of_training(extra: Mapping[str, Any]) -> PlannedConfig:
    """The plan that a training's orchestrator is, or corrects; `extra` from the product's manifest."""
    return with_numbers(extra.get("plan", {}))


def read_networks(policy: Path, fitted: FittedCluster) -> tuple[KeptNetwork, KeptNetwork]:
    """Dispatcher and orchestrator of a training's product."""
    key = jax.random.key(0)
    dispatcher = residual(dispatch_example(fitted), rule_params(fitted)).network
    orchestrator = corrected_plan(fitted)
    return (
        KeptNetwork(dispatcher, load_arrays(policy / DISPATCHER, jax.eval_shape(dispatcher.init, key))),
        KeptNetwork(orchestrator, load_arrays(policy / ORCHESTRATOR, jax.eval_shape(orchestrator.init, key))),
    )


def trained_pair(policy: Path) -> TrainedPair:
    """The pair that a training has chosen, and those of its sides that are no rules."""
    fitted, extra = load_fitted(policy), read_manifest(policy, "policy").extra
    pair, delay_s, plan = Pair(*extra["chosen"].split("+")), extra.get("delay_s"), plan_of_training(extra)
    dispatcher, orchestrator = read_networks(policy, fitted)
    dispatches = near_best_policy(dispatcher.network, dispatcher.params, RULE_MARGIN)
    changes = stepwise_policy(orchestrator.network, orchestrator.params, draws=False)

    def dispatch(case: EdgeCloud) -> Dispatch:
        return (centrally if pair.dispatch in IN_ONE_PLACE else observing)(case, dispatches)

    def orchestrate(case: EdgeCloud, frames: FrameConfig, _dispatch: Dispatch) -> Orchestrate:
        return orchestrating(shown_plan(fitted, fitted.as_known(case), frames, plan=plan), changes)

    own = {GPG: orchestrate, PLANNED_TUNED: planner_with(fitted, plan)}
    entrants = Entrants(
        {pair.dispatch: dispatch} if pair.dispatch in LEARNED else {},
        {name: rule for name, rule in own.items() if name == pair.orchestration},
        delay_s={} if delay_s is None else {RESIDUAL_CENTRAL: delay_s},
    )
    if delay_s is None:
        return TrainedPair(pair, entrants)
    others = (Pair(CENTRAL_RULE, PLANNED), *(Pair(name, STATIC) for name in CENTRAL if name != CENTRAL_RULE))
    return TrainedPair(pair, central_rivals(fitted, delay_s).joined(entrants), others)

"""Dispatchers and orchestrators of the user's in a comparison.

A function dispatches, over the planned deployment. `SlotPolicies` says both sides: functions, or names of the
comparison's own dispatchers and orchestrators.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import BASELINES, ORCHESTRATION_BASELINES, Baseline
from evaluation.judges.host_policy import HostPolicy
from evaluation.judges.named import RAISED
from evaluation.judges.slot_policies import SlotPolicies
from evaluation.judges.user_policies import (
    SIGNATURE,
    EnteredPolicies,
    Takes,
    UserPolicy,
    chose_illegally,
    enter,
    raised,
    tried,
)
from evaluation.problems.orchestration.bench import Entrants, Pair
from logs_schema.errors import ConfigError
from offline_rl.recipes.slot_training import dispatch_example
from twin.contracts import Array
from twin.environment import environment
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response, observing
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.frames import frame_problem
from twin.orchestration.learned import learned_chance
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.slots import SlotState, slot_problem

DISPATCHES = (
    f"{SIGNATURE}; a rule of evaluation.baselines; or both sides, an evaluation.SlotPolicies (what a training chose "
    "stands in the comparison of its POLICY)"
)
ORCHESTRATES = (
    "a function (key, state) -> changes, of operations of JAX: state a twin.orchestration.frame_state.FrameState, "
    "changes a twin.orchestration.frame_state.Scaling of whole numbers [changes of a frame, *streams]"
)


@dataclass
class Watched:
    """What a user's dispatcher did while it was judged: active seats asked, and illegal choices among them."""

    host: HostPolicy | None = None
    num_decisions: int = 0
    num_illegal: int = 0

    def count(self, decisions: Any, illegal: Any) -> None:
        """Adds the decisions of a slot."""
        self.num_decisions += int(decisions)
        self.num_illegal += int(illegal)


class UserPair(NamedTuple):
    """A pair with at least one side of the user's, as a comparison plays it."""

    pair: Pair
    entrants: Entrants
    watched: Watched


def user_pairs(
    policies: Mapping[str, UserPolicy], taken: Collection[str], fitted: FittedCluster, others: Entrants
) -> EnteredPolicies[UserPair]:
    """The user's policies as pairs.

    Args:
        policies: Name -> function of the type `twin.Policy`, rule of placement, or `SlotPolicies`.
        taken: Names of the comparison's own policies.
        fitted: The twin, which defines what policies observe.
        others: What may be named beside the baselines.

    Raises:
        ConfigError: A name is taken.
    """

    def of_dispatcher(name: str, policy: Any) -> UserPair:
        return of_pair(name, SlotPolicies(policy))

    def of_pair(name: str, given: SlotPolicies) -> UserPair:
        if isinstance(given.dispatch, str) and isinstance(given.orchestrate, str):
            raise ConfigError(
                f"policy {name!r} names both sides, {given.dispatch!r} and {given.orchestrate!r}",
                where="SlotPolicies",
                allowed="a function on one side at least",
                advice="pairs of names stand in the comparison already",
            )
        watched, dispatch, orchestration = Watched(), {}, {}
        pair = Pair(
            given.dispatch if isinstance(given.dispatch, str) else name,
            given.orchestrate if isinstance(given.orchestrate, str) else name,
        )
        rules = [one.name for one in BASELINES], [one.name for one in ORCHESTRATION_BASELINES]
        if isinstance(given.dispatch, str):
            _refuse_unknown(given.dispatch, [*rules[0], *others.dispatch], name)
        if isinstance(given.orchestrate, str):
            _refuse_unknown(given.orchestrate, [*rules[1], *others.orchestration], name)
        else:
            orchestration[name] = _orchestrator(name, given.orchestrate, fitted)
        if not isinstance(given.dispatch, str):
            dispatch[name] = _dispatcher(name, given.dispatch, fitted, watched)
        return UserPair(pair, Entrants(dispatch, orchestration), watched)

    takes = Takes(DISPATCHES, of_dispatcher, baseline=of_dispatcher, slots=of_pair)
    return enter(policies, taken, takes)


def what_went_wrong(name: str, watched: Watched, where: str) -> ConfigError | None:
    """Why a policy that has been played is to be left out; None where it is not."""
    jax.effects_barrier()
    if watched.host is not None and watched.host.error is not None:
        return raised(name, watched.host.error, where)
    if watched.num_illegal:
        return chose_illegally(name, watched.num_illegal, watched.num_decisions, where)
    return None


def _refuse_unknown(named: str, known: Collection[str], name: str) -> None:
    if named not in known:
        raise ConfigError(
            f"policy {name!r} names {named!r}",
            where="SlotPolicies",
            allowed=f"a function, or {', '.join(dict.fromkeys(known))}",
            advice="check the spelling",
        )


def _dispatcher(
    name: str, given: Any, fitted: FittedCluster, watched: Watched
) -> Callable[[EdgeCloud], Dispatch]:
    if not isinstance(given, Baseline):
        given = tried(name, given, dispatch_example(fitted))
        watched.host = given if isinstance(given, HostPolicy) else None

    def make(case: EdgeCloud) -> Dispatch:
        dispatch = observing(case, given.policy(case.cluster) if isinstance(given, Baseline) else given)
        problem = slot_problem(case)

        def watching(key: Array, state: SlotState, legal: Array) -> Array:
            node, active = dispatch(key, state, legal), problem.active(state)
            chosen = jnp.clip(node, 0, len(legal) - 1)
            allowed = (chosen == node) & jnp.take_along_axis(legal, chosen[None], axis=0)[0]
            jax.debug.callback(watched.count, jnp.sum(active), jnp.sum(active & ~allowed))
            return node

        return watching

    return make


def _orchestrator(
    name: str, given: Any, fitted: FittedCluster
) -> Callable[[EdgeCloud, FrameConfig, Dispatch], Orchestrate]:
    edge, frames = fitted.edge, fitted.frames
    nothing = observing(edge, lambda _key, _seen, legal: jnp.argmax(legal, axis=0).astype(jnp.int32))
    response = frame_response(edge, learned_chance(edge, fitted.tables), nothing, frames)
    system = environment(frame_problem(edge, frames), response)
    state = jax.eval_shape(lambda key: system.reset(key, (3,)).problem, jax.random.key(0))
    wanted = jax.eval_shape(ORCHESTRATION_BASELINES[0].rule(edge, frames), jax.random.key(0), state)
    try:
        answer = jax.eval_shape(given, jax.random.key(0), state)
    except RAISED as error:  # of a function of the user's: anything
        raise raised(name, error, signature=ORCHESTRATES) from error
    is_scaling = isinstance(answer, Scaling) and all(
        getattr(one, "shape", None) == other.shape and np.issubdtype(one.dtype, np.integer)
        for one, other in zip(answer, wanted, strict=True)
    )
    if not is_scaling:
        raise ConfigError(
            f"policy {name!r} returns a {type(answer).__name__} of arrays "
            f"{[list(leaf.shape) for leaf in jax.tree.leaves(answer)]}",
            where=f"states of {edge.num_nodes} nodes and 3 streams",
            allowed=ORCHESTRATES,
        )

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.int32), given(key, state))

    return lambda _case, _frames, _dispatch: orchestrate

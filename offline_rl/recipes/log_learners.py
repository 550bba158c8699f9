"""Learners that need no twin, all seeds of each, from the same replayed history as the clone."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from logs_schema.progress import Progress
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import (
    AdvantageWeightedConfig,
    ConservativeQConfig,
    DirectMethodConfig,
    ImplicitQConfig,
    advantage_weighted,
    conservative_q,
    direct_method,
    implicit_q,
    regularised_imitation,
)
from offline_rl.networks import Actor, Example
from offline_rl.training_loop import from_logs, refuse_divergence, updates
from offline_rl.transitions import pairs_from_logs
from twin.contracts import Array, PyTree, Trajectory

PAIRS = 256
"""Transitions in a gradient step."""
STREAMS = 4
"""Windows in a gradient step of a learner that wants more than pairs: some hundred decisions, like theirs."""


class Learner(NamedTuple):
    """A learner that needs no twin."""

    algorithm: Algorithm
    from_pairs: bool  # pairs of consecutive steps are enough for it
    actor: Callable[[PyTree], PyTree]  # state -> parameters of the policy


def _conservative(example: Example, network: Actor, horizon_s: float, _is_share: bool) -> Learner:
    algorithm = conservative_q(example, ConservativeQConfig(horizon_s), network)
    return Learner(algorithm, True, lambda state: state.params)


def _implicit(example: Example, network: Actor, horizon_s: float, _is_share: bool) -> Learner:
    algorithm = implicit_q(example, ImplicitQConfig(horizon_s), network)
    return Learner(algorithm, True, lambda state: state.params.actor)


def _weighted(example: Example, network: Actor, horizon_s: float, _is_share: bool) -> Learner:
    algorithm = advantage_weighted(example, AdvantageWeightedConfig(horizon_s), network)
    return Learner(algorithm, False, lambda state: state.params.actor)


def _regularised(example: Example, network: Actor, _horizon_s: float, _is_share: bool) -> Learner:
    return Learner(regularised_imitation(example, network=network), True, lambda state: state.actor)


def _direct(example: Example, network: Actor, _horizon_s: float, is_share: bool) -> Learner:
    algorithm = direct_method(example, DirectMethodConfig(is_share), network)
    return Learner(algorithm, False, lambda state: state.actor)


LEARNERS: Mapping[str, Callable[[Example, Actor, float, bool], Learner]] = {
    "cql": _conservative,
    "iql": _implicit,
    "awr": _weighted,
    "regularised": _regularised,
    "direct_method": _direct,
}
"""Learners that need no twin, by name: (example, network, horizon in seconds, whether rewards are shares)."""


def learn_from_log(
    key: Array,
    history: Trajectory,
    example: Example,
    network: Actor,
    horizon_s: float,
    names: Sequence[str],
    seeds: Sequence[int],
    num_updates: int,
    progress: Progress,
) -> dict[str, PyTree]:
    """Trains learners that need no twin.

    Args:
        key: PRNG key; each seed is folded in.
        history: The log as a trajectory of disjoint windows.
        example, network: Shapes and network, as of the clone.
        horizon_s: Seconds after which a reward counts 1/e.
        names: Of `LEARNERS`.
        seeds: One policy of each learner for each.
        num_updates: Gradient steps of each.
        progress: Where to show how far it is.

    Returns:
        Name -> parameters of the policy, leaves [seeds, ...].

    Raises:
        TrainingError: A learner diverged.
    """
    if not names:
        return {}
    found: dict[str, PyTree] = {}
    reward = np.asarray(history.reward)
    is_share = bool(np.all((reward >= 0.0) & (reward <= 1.0)))
    total = len(names) * len(seeds)
    with progress.stage("learn from the log alone", total=total, unit="policies") as stage:
        for name in names:
            learner = LEARNERS[name](example, network, horizon_s, is_share)
            streams = min(STREAMS, history.active.shape[-1])
            experience = (
                pairs_from_logs(history, PAIRS) if learner.from_pairs else from_logs(history, streams)
            )
            run, begin, each = updates(learner.algorithm, num_updates), jax.jit(learner.algorithm.init), []
            for seed in seeds:
                key_init, key_run = jax.random.split(jax.random.fold_in(key, seed))
                state, info = run(key_run, begin(key_init), experience, 0)
                refuse_divergence(state, jax.tree.map(np.asarray, info), 0)
                each.append(jax.tree.map(np.asarray, learner.actor(state)))
                stage(len(found) * len(seeds) + len(each), text=f"{name}, seed {seed}")
            found[name] = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    return found

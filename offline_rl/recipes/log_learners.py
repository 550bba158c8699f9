"""Learners that need no twin, all seeds of each, from the same replayed history as the clone.

Each is tuned on held-out windows of the training days: its horizon, its conservatism and the number of its updates are
those under which its greedy policy is worth most there (`held_out_value`); then every seed learns so from all windows.
The search is kept beside the policies. Numbers that are tuned are arguments of the compiled program: one for a learner.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Progress
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import (
    AdvantageWeightedConfig,
    ChoicesTD3BCConfig,
    ConservativeQConfig,
    DirectMethodConfig,
    ImplicitQConfig,
    advantage_weighted,
    conservative_q,
    direct_method,
    implicit_q,
    regularised_imitation,
    td3_bc_choices,
)
from offline_rl.networks import Actor, Example
from offline_rl.recipes.cloning import split_windows
from offline_rl.recipes.held_out_value import Value, held_out_value
from offline_rl.training_loop import Experience, first_updates, from_logs, refuse_divergence, updates
from offline_rl.transitions import pairs_from_logs
from twin.arrays import load_structure, save_arrays
from twin.contracts import Array, PyTree, Trajectory

PAIRS = 256
"""Transitions in a gradient step."""
STREAMS = 4
"""Windows in a gradient step of a learner that needs more than pairs: some hundred decisions, like theirs."""
SHORTER = 0.05
"""The shorter of the horizons that are tried, as a share of the longer."""
NUM_EVALUATIONS = 3
"""Numbers of updates that are tried: so many equal parts of all."""


class LearnerNumbers(NamedTuple):
    """What is tuned; traced in a compiled program."""

    horizon_s: float
    weight: float  # of the pull to the log, or of the pull away from it; each learner's own


class LogLearner(NamedTuple):
    """A learner that needs no twin."""

    make: Callable[[Example, Actor, LearnerNumbers, bool], Algorithm]  # the last: whether rewards are shares
    actor: Callable[[PyTree], PyTree]  # state -> parameters of the policy
    from_pairs: bool  # pairs of consecutive steps are enough for it
    weights: tuple[float, ...]  # that are tried, the usual one first
    has_horizon: bool = True


class LearnerSearch(NamedTuple):
    """What the tuning of a learner measured."""

    horizon_s: np.ndarray  # [candidates]
    weight: np.ndarray  # [candidates]
    num_updates: np.ndarray  # [evaluations]
    value: np.ndarray  # [candidates, evaluations] on held-out windows; NaN where nothing was held out
    chosen: np.ndarray  # [2] candidate and evaluation


NO_SEARCH = LearnerSearch(*(np.zeros(0) for _ in LearnerSearch._fields))


def tuned_as(search: LearnerSearch) -> dict[str, float | None]:
    """The numbers that were chosen, and what they were worth on held-out windows, as plain values."""
    candidate, evaluation = (int(index) for index in search.chosen)
    value = float(search.value[candidate, evaluation])
    return {
        "horizon_s": float(search.horizon_s[candidate]),
        "weight": float(search.weight[candidate]),
        "num_updates": int(search.num_updates[evaluation]),
        "held_out_value": value if np.isfinite(value) else None,
    }


def _conservative(example: Example, network: Actor, numbers: LearnerNumbers, _is_share: bool) -> Algorithm:
    return conservative_q(example, ConservativeQConfig(numbers.horizon_s, alpha=numbers.weight), network)


def _implicit(example: Example, network: Actor, numbers: LearnerNumbers, _is_share: bool) -> Algorithm:
    return implicit_q(example, ImplicitQConfig(numbers.horizon_s, temperature=numbers.weight), network)


def _weighted(example: Example, network: Actor, numbers: LearnerNumbers, _is_share: bool) -> Algorithm:
    config = AdvantageWeightedConfig(numbers.horizon_s, temperature=numbers.weight)
    return advantage_weighted(example, config, network)


def _td3_bc(example: Example, network: Actor, numbers: LearnerNumbers, _is_share: bool) -> Algorithm:
    return td3_bc_choices(example, ChoicesTD3BCConfig(numbers.horizon_s, q_weight=numbers.weight), network)


def _regularised(example: Example, network: Actor, _numbers: LearnerNumbers, _is_share: bool) -> Algorithm:
    return regularised_imitation(example, network=network)


def _direct(example: Example, network: Actor, numbers: LearnerNumbers, is_share: bool) -> Algorithm:
    return direct_method(example, DirectMethodConfig(is_share, weight_decay=numbers.weight), network)


LEARNERS: Mapping[str, LogLearner] = {
    "cql": LogLearner(_conservative, lambda state: state.params, True, (0.1, 1.0)),
    "iql": LogLearner(_implicit, lambda state: state.params.actor, True, (3.0, 10.0)),
    "td3_bc": LogLearner(_td3_bc, lambda state: state.params.actor, True, (2.5, 10.0)),
    "awr": LogLearner(_weighted, lambda state: state.params.actor, False, (1.0, 3.0)),
    "regularised": LogLearner(_regularised, lambda state: state.actor, True, (0.4,), has_horizon=False),
    "direct_method": LogLearner(_direct, lambda state: state.actor, False, (1e-4, 1e-2), has_horizon=False),
}
"""Learners that need no twin, by name."""


def learn_from_log(
    key: Array,
    history: Trajectory,
    example: Example,
    network: Actor,
    clone: PyTree,
    horizon_s: float,
    names: Sequence[str],
    seeds: Sequence[int],
    num_updates: int,
    held_out: float,
    progress: Progress,
    keep: Path | None = None,
) -> tuple[dict[str, PyTree], dict[str, LearnerSearch]]:
    """Tunes and trains learners that need no twin.

    Args:
        key: PRNG key; each seed is folded in.
        history: The log as a trajectory of disjoint windows.
        example, network: Shapes and network, as of the clone.
        clone: Parameters of the clone of the logged behaviour.
        horizon_s: Longest time after which a reward may count 1/e.
        names: Of `LEARNERS`.
        seeds: One policy of each learner for each.
        num_updates: Gradient steps of each at most.
        held_out: Share of the windows that learners are tuned on; with fewer than two windows none is tuned.
        progress: Where to show how far it is.
        keep: Folder for learners that have learned, from where they are taken; None keeps nothing.

    Returns:
        Name -> parameters of the policy, leaves [seeds, ...]; name -> how it was tuned.

    Raises:
        TrainingError: A learner diverged.
    """
    if not names:
        return {}, {}
    reward = np.asarray(history.reward)
    is_share = bool(np.all((reward >= 0.0) & (reward <= 1.0)))
    key_value, key_tune, key_seeds = jax.random.split(key, 3)
    train, kept_back = split_windows(history, held_out)
    value = None
    if kept_back is not train:
        streams = min(STREAMS, train.active.shape[-1])
        value = held_out_value(
            key_value, train, kept_back, example, network, clone, num_updates, streams, is_share=is_share
        )
    found: dict[str, PyTree] = {}
    searches: dict[str, LearnerSearch] = {}
    files = {name: None if keep is None else keep / f"learner-{name}.npz" for name in names}
    with progress.stage("learn from the log alone", total=len(names), unit="learners") as stage:
        for name, file in files.items():
            if file is not None and file.exists():
                found[name], searches[name] = load_structure(file, (clone, NO_SEARCH))
                continue
            stage(len(found), text=f"{name}: tuning")
            learning = _Learning(LEARNERS[name], example, network, is_share, num_updates)
            search = _tune(key_tune, learning, train, horizon_s, value)
            searches[name], each = search, []
            candidate, evaluation = search.chosen.tolist()
            numbers = LearnerNumbers(float(search.horizon_s[candidate]), float(search.weight[candidate]))
            for seed in seeds:
                stage(len(found), text=f"{name}: seed {seed}")
                evaluations = learning.run(
                    jax.random.fold_in(key_seeds, seed), history, numbers, evaluation + 1
                )
                each.append(evaluations[-1])
            found[name] = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
            if file is not None:
                save_arrays(file, (found[name], search))
        stage(len(names))
    return found, searches


class _Learning:
    """One learner's program, compiled once for all numbers and seeds; a run is cut into equal parts by evaluations."""

    def __init__(
        self, learner: LogLearner, example: Example, network: Actor, is_share: bool, num_updates: int
    ) -> None:
        self.learner, self.length = learner, -(-num_updates // NUM_EVALUATIONS)

        def begin(key: Array, numbers: LearnerNumbers) -> PyTree:
            return learner.make(example, network, numbers, is_share).init(key)

        def advance(
            numbers: LearnerNumbers, key: Array, state: PyTree, experience: Experience, first: Array
        ) -> tuple[PyTree, PyTree]:
            algorithm = learner.make(example, network, numbers, is_share)
            return updates.__wrapped__(algorithm, self.length)(key, state, experience, first)

        self._begin, self._advance = jax.jit(begin), jax.jit(advance)

    def run(
        self, key: Array, history: Trajectory, numbers: LearnerNumbers, num_evaluations: int
    ) -> list[PyTree]:
        """The policy's parameters after every part of the run."""
        streams = min(STREAMS, history.active.shape[-1])
        of_pairs = self.learner.from_pairs
        experience = pairs_from_logs(history, PAIRS) if of_pairs else from_logs(history, streams)
        key_init, key_run = jax.random.split(key)
        state, found = self._begin(key_init, numbers), []
        for evaluation in range(num_evaluations):
            first = evaluation * self.length
            state, info = self._advance(numbers, key_run, state, experience, jnp.int32(first))
            refuse_divergence(state, first_updates(info, self.length), first)
            found.append(jax.tree.map(np.asarray, self.learner.actor(state)))
        return found


def _tune(
    key: Array, learning: _Learning, train: Trajectory, horizon_s: float, value: Value | None
) -> LearnerSearch:
    """Every candidate, learned from the windows that are not held out and valued on those that are."""
    learner = learning.learner
    horizons = (horizon_s, SHORTER * horizon_s) if learner.has_horizon else (horizon_s,)
    candidates = [(horizon, weight) for horizon in horizons for weight in learner.weights]
    values = np.full((len(candidates), NUM_EVALUATIONS), np.nan)
    chosen = np.array([0, NUM_EVALUATIONS - 1])
    if value is not None:
        for row, (horizon, weight) in enumerate(candidates):
            evaluations = learning.run(key, train, LearnerNumbers(horizon, weight), NUM_EVALUATIONS)
            values[row] = [value(params) for params in evaluations]
        chosen = np.array(np.unravel_index(np.argmax(values), values.shape))
    parts = learning.length * np.arange(1, NUM_EVALUATIONS + 1)
    tried = np.array(candidates)
    return LearnerSearch(tried[:, 0], tried[:, 1], parts, values, chosen)

"""What training yields, and how it is kept: parameters and curves as arrays, the encoding they belong to, no pickle."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from logs_schema.errors import ConfigError, ProductError
from offline_rl.export import network_facts, network_of
from offline_rl.networks import Actor, Example, example_in, greedy_policy
from offline_rl.recipes.ladder import RungStep, chosen_of
from offline_rl.recipes.log_learners import LearnerSearch
from offline_rl.recipes.training_days import observed_rows, save_training_days, training_days
from offline_rl.rules.actor import with_usual
from twin.arrays import load_nested, load_structure, save_arrays
from twin.contracts import Policy, PyTree
from twin.placement.encoding import Encoding
from twin.placement.history import choices_in_log, shapes_of_replay
from twin.placement.model import PlacementTwin, load_encoding
from twin.placement.windows import Windows

NUM_OBSERVED = 256
"""Observations of logged requests that are kept, as a bundle reads them, spread over the log."""
TWIN = "twin"
"""Name of what PPO in the twin made of the clone."""


class Schedulers(NamedTuple):
    """What training yields; all policies have one kind of network. Without PPO from the clone there are no seeds."""

    clone: PyTree  # parameters of the clone's actor
    trained: PyTree  # parameters of the twin-trained actors, leaves [seeds, ...]
    clone_curve: np.ndarray  # [evaluations, 2] mean cross-entropy of training and held-out windows, nats
    reward_curve: np.ndarray  # [seeds, updates] mean reward of a settled decision in the twin
    kl_curve: np.ndarray  # [seeds, updates] KL(policy || clone), nats
    # [seeds, evaluations] mean reward of the greedy policy with the member held out
    held_out_curve: np.ndarray
    from_logs: Mapping[str, PyTree]  # name of a learner that needs no twin -> parameters, leaves [seeds, ...]
    # name of a rule, or of the policy that corrects one -> its parameters (`offline_rl.rules`)
    rules: Mapping[str, PyTree]
    # name of a policy -> how it did before the referee (`offline_rl.recipes.ladder`)
    ladder: Mapping[str, RungStep]
    searches: Mapping[str, LearnerSearch]  # name of a learner that needs no twin -> how it was tuned

    @property
    def chosen(self) -> tuple[str, int]:
        """Name and seed's row of the policy that the ladder chose; without a ladder the first seed's from the twin."""
        return chosen_of(self.ladder) if self.ladder else (TWIN, 0)

    @property
    def num_trained(self) -> int:
        """How many seeds' policies PPO made of the clone."""
        return len(self.held_out_curve)


def stacked(each: Sequence[PyTree], like: PyTree) -> PyTree:
    """Equal structures as one, leaves [len(each), ...]; of none, leaves [0, ...] as those of `like`."""
    if not each:
        return jax.tree.map(lambda leaf: np.zeros((0, *np.shape(leaf)), np.asarray(leaf).dtype), like)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


def example_for(encoding: Encoding, windows: Windows) -> Example:
    """The shapes of a policy's observation on this cluster, from a replay of one window."""
    return example_in(shapes_of_replay(windows, encoding))


def network_for(schedulers: Schedulers, example: Example) -> Actor:
    """The network that the schedulers' parameters are of."""
    return network_of(network_facts(schedulers.clone), example)


def save_schedulers(schedulers: Schedulers, twin: PlacementTwin, folder: Path) -> None:
    """Writes schedulers, observations and the encoding they belong to into an existing folder; no pickle."""
    save_arrays(folder / "schedulers.npz", schedulers)
    windows = twin.disjoint_windows()
    history = choices_in_log(windows, twin.encoding)
    save_arrays(folder / "observed.npz", {"features": observed_rows(history, NUM_OBSERVED)})
    save_training_days(training_days(windows, twin.encoding, history), folder)
    (folder / "encoding.json").write_text(twin.encoding.to_json())


def load_observed(folder: Path) -> np.ndarray:
    """The observations that `save_schedulers` kept; ProductError where there are none."""
    return load_structure(folder / "observed.npz", {"features": 0})["features"]


def load_schedulers(folder: Path) -> tuple[Schedulers, Encoding]:
    """Reads what `save_schedulers` wrote.

    Raises:
        ProductError: A file is missing or of another kind.
    """
    encoding, path = load_encoding(folder), folder / "schedulers.npz"
    found = {"from_logs": {}, "rules": {}, "ladder": {}, "searches": {}, **load_nested(path)}
    try:
        found["rules"] = {name: with_usual(params) for name, params in found["rules"].items()}
        found["ladder"] = {name: RungStep(**step) for name, step in found["ladder"].items()}
        found["searches"] = {name: LearnerSearch(**search) for name, search in found["searches"].items()}
        return Schedulers(**found), encoding
    except (TypeError, KeyError) as error:  # names that are missing, or not known here
        raise ProductError(
            "these are not the schedulers of this version", where=f"{path}: {error}", advice="train again"
        ) from error


def policy_params(schedulers: Schedulers, name: str, seed_row: int) -> PyTree:
    """The parameters of one policy by the name it has in comparisons; of what has seeds, those of a row.

    Raises:
        ConfigError: There is no such policy, or none that decides by itself.
    """
    with_seeds = seeded(schedulers)
    if name in with_seeds:
        return jax.tree.map(lambda leaf: leaf[seed_row], with_seeds[name])
    alone = {"bc_greedy": schedulers.clone, **schedulers.rules}
    if name not in alone:
        raise ConfigError(
            f"there is no policy {name!r} to export",
            allowed=", ".join([*with_seeds, *alone]),
            advice="check the spelling; without a name what the ladder chose is exported",
        )
    return alone[name]


def seeded(schedulers: Schedulers) -> dict[str, PyTree]:
    """The policies that were trained once for each seed: name -> parameters, leaves [seeds, ...]."""
    return ({TWIN: schedulers.trained} if schedulers.num_trained else {}) | dict(schedulers.from_logs)


def row_of_seed(schedulers: Schedulers, name: str, seed: int, seeds: Sequence[int]) -> int:
    """The row of a policy's seed, of those of the training.

    Raises:
        ConfigError: The training had no such seed, or nothing of this name was trained once for each.
    """
    if seed not in seeds:
        raise ConfigError(f"there is no policy of seed {seed}", allowed=", ".join(map(str, seeds)))
    if name not in (known := seeded(schedulers)):
        raise ConfigError(
            f"there is no policy {name!r} of seed {seed}: this training has none of that name with seeds",
            where=f"--seed {seed}",
            allowed=f"a seed of {', '.join(known)}" if known else "no seed: the training had num_updates = 0",
            advice="leave the seed out",
        )
    return list(seeds).index(seed)


def policy_of(params: PyTree, example: Example) -> Policy:
    """The greedy policy of any actor's parameters, whatever network or rule they are of."""
    return greedy_policy(network_of(network_facts(params), example), params)


def best_rule(schedulers: Schedulers) -> PyTree | None:
    """The parameters of the best rule that the ladder took, which stands in for what is exported; None without one. Of
    a rule and its tuned form that are worth the same it is the tuned one, whose name comes later."""
    taken = {name: step.value for name, step in schedulers.ladder.items() if step.taken}
    rules = {name: params for name, params in schedulers.rules.items() if len(params["params"]) == 1}
    able = taken.keys() & rules.keys()
    return rules[max(able, key=lambda name: (taken[name], name))] if able else None


def best_row(schedulers: Schedulers, name: str) -> int:
    """The row of the seed of a policy that did best with the member that was held out; ties to the first."""
    step = schedulers.ladder.get(name)
    if step is not None:
        return int(step.row)
    return best_seed(schedulers) if schedulers.num_trained else 0


def best_seed(schedulers: Schedulers) -> int:
    """The row of the seed whose policy from the twin did best with the member that was held out; ties to the first."""
    return int(np.argmax(schedulers.held_out_curve.max(axis=1)))

"""The oracle: PPO trained directly in a simulated world, on one of its days; what twins are measured against.

It starts from a clone of the rule that knows the mechanics (`least_expected_delay`) as far as a site's observations
can tell its decisions, and then learns from its own. Episodes begin empty at random times of day.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evaluation.baselines import LEAST_EXPECTED_DELAY
from evaluation.simulator.conditions import Conditions, conditions
from evaluation.simulator.names import names_in
from evaluation.simulator.truth import truth_answers, truth_arrivals
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from offline_rl.algorithms import PPOConfig, behaviour_cloning, ppo
from offline_rl.networks import Actor, Example, actor, example_of
from offline_rl.train import Experience, train_resumable
from twin.arrays import load_arrays, save_arrays
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.placement.responses import drawn_response
from twin.rollout import rollout, unroll

KIND = "oracle"
_FILE = "oracle.npz"


@dataclass(frozen=True)
class OracleConfig:
    """How an oracle is trained.

    Attributes:
        clone_updates: Gradient steps towards the rule it starts from, each on fresh episodes.
        num_updates: PPO updates, each on fresh episodes.
        num_streams: Episodes of an update, a multiple of four.
        turnovers: Requests of an episode, for every core of the world.
        depth: Requests that a node's books hold.
    """

    clone_updates: int = 400
    num_updates: int = 150
    num_streams: int = 16
    turnovers: float = 20.0
    depth: int = 16

    def __post_init__(self) -> None:
        if min(self.clone_updates, self.num_updates, self.num_streams, self.depth) < 1 or self.turnovers <= 0:
            raise ConfigError("updates, streams, turnovers and slots must be positive", where="bench oracle")


class Oracle(NamedTuple):
    """A trained oracle."""

    preset: str
    day: int
    params: PyTree  # of the actor


def problem_config(world: World, depth: int) -> PlacementConfig:
    """The placement problem of a world; its unit of time is the mean work of a service."""
    unit_s = float(np.mean([service.work_s for service in world.services]))
    return PlacementConfig(depth=depth, time_unit_s=round(unit_s, 3), memory_s=round(10.0 * unit_s, 3))


def _truth(
    world: World, config: PlacementConfig, today: Conditions, begin_s: Array | float = 0.0
) -> Environment:
    cluster = cluster_of(world)
    names = names_in(world, cluster)
    arrivals = truth_arrivals(world, today, names, begin_s=begin_s)
    response = drawn_response(cluster, config.depth, arrivals, truth_answers(world, today, names))
    return environment(placement(cluster, config), response)


def oracle_network(world: World, depth: int) -> Actor:
    """The actor that oracles of this world share."""
    return actor(_example(world, problem_config(world, depth)))


def _example(world: World, config: PlacementConfig) -> Example:
    return example_of(_truth(world, config, conditions(world, 0)))


def train_oracle(
    world: World,
    day: int,
    config: OracleConfig,
    *,
    seed: int = 0,
    progress: Callable[[int, str], None] = lambda done, what: None,
) -> tuple[Oracle, np.ndarray]:
    """Trains an oracle for one day.

    Args:
        world: A validated world.
        day: Days since day 0, >= 0.
        config: How.
        seed: Of everything drawn.
        progress: Told how many updates are done, and how it goes.

    Returns:
        The oracle, and its curve: share of settled decisions that were on time [num_updates], warm-up included.
    """
    if day < 0:
        raise ConfigError(f"day {day}", where="bench oracle", allowed="0 and later")
    books = problem_config(world, config.depth)
    example, today = _example(world, books), conditions(world, day)
    key_clone, key_train = jax.random.split(jax.random.key(seed))

    def say(stage: str, before: int) -> Callable[[int, int, PyTree], None]:
        def tell(done: int, _total: int, info: PyTree) -> None:
            number = info.agreement[-1] if stage == "clone" else np.mean(info.reward)
            progress(before + done, f"{stage} {float(number):.3f}")

        return tell

    clone, _ = train_resumable(
        key_clone, behaviour_cloning(example), _shown(world, books, today, config), config.clone_updates,
        updates_per_chunk=25, on_chunk=say("clone", 0),
    )  # fmt: skip
    settings = PPOConfig(horizon_s=books.time_unit_s, gae_lambda=0.9, kl_to_clone=0.0, entropy=0.003)
    state, info = train_resumable(
        key_train, ppo(example, settings, clone=clone.actor), _own(world, books, today, config), config.num_updates,
        updates_per_chunk=25, on_chunk=say("on time", config.clone_updates),
    )  # fmt: skip
    params = jax.tree.map(np.asarray, state.params.actor)
    return Oracle(world.name, day, params), np.asarray(info.reward)


def _length(world: World, config: OracleConfig) -> int:
    return round(config.turnovers * sum(node.cpu_cores for node in world.nodes))


def _begin_s(key: Array, today: Conditions, num_streams: int) -> Array:
    return jax.random.uniform(key, (num_streams,)) * jnp.asarray(today.day_s)


def _own(world: World, books: PlacementConfig, today: Conditions, config: OracleConfig) -> Experience:
    """Episodes that the learner's own policy lives."""

    def act(today: Conditions, key: Array, policy: Policy) -> Trajectory:
        key_begin, key_run = jax.random.split(key)
        system = _truth(world, books, today, _begin_s(key_begin, today, config.num_streams))
        return rollout(key_run, system, policy, _length(world, config), (config.num_streams,))

    return Partial(act, jax.tree.map(jnp.asarray, today))


def _shown(world: World, books: PlacementConfig, today: Conditions, config: OracleConfig) -> Experience:
    """Episodes that the rule lives which knows the mechanics, as a learner would observe them."""
    names = names_in(world, cluster_of(world))

    def act(today: Conditions, key: Array, _policy: Policy) -> Trajectory:
        key_begin, key_run = jax.random.split(key)
        system = _truth(world, books, today, _begin_s(key_begin, today, config.num_streams))
        problem = system.problem
        shown = problem._replace(observe=lambda state: (problem.observe(state), state))

        def decide(key: Array, seen: PyTree, _legal: Array, _: None) -> Array:
            return LEAST_EXPECTED_DELAY.decide(key, world, names, today, seen[1])

        streams = (config.num_streams,)
        lived = unroll(key_run, system._replace(problem=shown), decide, None, _length(world, config), streams)
        return lived._replace(observation=lived.observation[0])

    return Partial(act, jax.tree.map(jnp.asarray, today))


def write_oracle(
    world: World,
    day: int,
    config: OracleConfig,
    out: Path,
    *,
    seed: int = 0,
    replace: bool = False,
    progress: Callable[[int, str], None] = lambda done, what: None,
) -> dict[str, object]:
    """Trains an oracle and keeps it as a product; returns the facts of its manifest."""
    facts: dict[str, object] = {"preset": world.name, "day": day}
    with writing(out, KIND, config=asdict(config), seed=seed, extra=facts, replace=replace) as folder:
        oracle, curve = train_oracle(world, day, config, seed=seed, progress=progress)
        save_arrays(folder / _FILE, oracle.params)
        facts["on_time_in_training"] = [round(float(value), 4) for value in curve]
    return facts


def load_oracle(path: Path, world: World, depth: int) -> Oracle:
    """Reads an oracle of `world`.

    Raises:
        ProductError: there is none, or it cannot be read.
        ConfigError: it was trained in another world.
    """
    facts = read_manifest(path, KIND).extra
    if facts["preset"] != world.name:
        raise ConfigError(
            f"the oracle was trained in {facts['preset']!r}, not in {world.name!r}", where=str(path),
            allowed=f"an oracle of {world.name}", advice="train one: schedtwin bench oracle",
        )  # fmt: skip
    like = oracle_network(world, depth).init(jax.random.key(0))
    return Oracle(world.name, int(facts["day"]), load_arrays(path / _FILE, like))

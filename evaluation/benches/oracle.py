"""The oracle: PPO trained directly in a simulated world, on one of its days; what twins are measured against.

It is a reference, not a policy to deploy: it sees every node and the world's tables of its day
(`evaluation.benches.oracle_view`). Before it learns it already prefers nodes that make the request in hand succeed,

    logits = SHARPNESS * (chance of being accepted and in time - PRICE * time of a core taken + network),

the network about 0, and learns from its own decisions what they are worth to those who come after. Episodes begin empty
at random times of day. It decides greedily: what is judged is one rule, not a draw.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evaluation.benches.oracle_view import NODE_NUMBERS, mean_work_s, oracle_global_view, oracle_view
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.names import Names, names_in
from evaluation.simulator.truth import truth_response
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.distributions import greedy
from offline_rl.losses import mask_logits
from offline_rl.networks import Actor, Example, example_of
from offline_rl.scorer import ScorerConfig, scorer
from offline_rl.training_loop import Experience, train_resumable
from twin.arrays import load_arrays, save_arrays
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.placement.types import PlacementState
from twin.rollout import rollout

KIND = "oracle"
FORM = 1
"""Version of what oracles see and how they learn; raised with any change to either, so that none is mixed up."""
_FILE = "oracle.npz"
NETWORK = ScorerConfig(hidden=(16, 16), identity=False, pooled=True)
"""One small network for all nodes: their numbers say all that there is to know."""
SHARPNESS, PRICE = 120.0, 0.1
"""Nats for the whole of a chance; what a core for the mean work is worth at first, in chances."""


@dataclass(frozen=True)
class OracleConfig:
    """How an oracle is trained.

    Attributes:
        num_updates: PPO updates, each on fresh episodes.
        requests_per_update: Requests of an update's episodes, about.
        turnovers: Requests of an episode, for every core of the world.
        least_steps: Fewest requests of an episode.
        horizon: Time after which a reward counts 1/e, in units of the world's mean work.
        gae_lambda, entropy, learning_rate: See `PPOConfig`.
        depth: Requests that a node's books hold.
    """

    num_updates: int = 60
    requests_per_update: int = 32_768
    turnovers: float = 8.0
    least_steps: int = 800
    horizon: float = 4.0
    gae_lambda: float = 0.8
    entropy: float = 0.0
    learning_rate: float = 1e-3
    depth: int = 16

    def __post_init__(self) -> None:
        sizes = (self.num_updates, self.requests_per_update, self.least_steps, self.depth)
        if min(sizes) < 1 or self.turnovers <= 0:
            raise ConfigError("updates, requests, steps and slots must be positive", where="bench oracle")


class Oracle(NamedTuple):
    """A trained oracle."""

    preset: str
    day: int
    params: PyTree  # of the actor


def problem_config(world: World, depth: int) -> PlacementConfig:
    """The placement problem of a world; its unit of time is the mean work of a service."""
    unit_s = mean_work_s(world)
    return PlacementConfig(depth=depth, time_unit_s=round(unit_s, 3), memory_s=round(10.0 * unit_s, 3))


def oracle_network(world: World) -> Actor:
    """The actor of this world's oracles; its parameters have the same shapes in every world."""
    return _network(_example(world, problem_config(world, depth=1)))


def _network(example: Example) -> Actor:
    learned = scorer(example, NETWORK)
    cost, chance = (NODE_NUMBERS.index(name) for name in ("cost", "chance"))

    def logits(params: PyTree, observation: PyTree, legal: Array) -> Array:
        nodes = observation.node
        worth = nodes[chance] - PRICE * nodes[cost] + learned.logits(params, observation, legal)
        return mask_logits(SHARPNESS * worth, legal)

    return Actor(learned.init, logits)


def oracle_choice(
    network: Actor,
    params: PyTree,
    world: World,
    names: Names,
    known: DayConditions,
    state: PlacementState,
    legal: Array,
) -> Array:
    """The oracle's decision [1, *streams], knowing the tables of the day `known`."""
    return greedy(network.logits(params, oracle_view(world, names, known, state), legal))


def _seeing(
    world: World, config: PlacementConfig, today: DayConditions, begin_s: Array | float = 0.0
) -> Environment:
    """The truth of a day, observed as an oracle of that day observes it."""
    cluster = cluster_of(world)
    names = names_in(world, cluster)
    response = truth_response(world, cluster, config.depth, today, names, begin_s=begin_s)
    problem = placement(cluster, config)._replace(
        observe=lambda state: oracle_view(world, names, today, state),
        observe_global=lambda state: oracle_global_view(world, names, today, state),
    )
    return environment(problem, response)


def _example(world: World, config: PlacementConfig) -> Example:
    return example_of(_seeing(world, config, conditions(world, 0)))


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

    def tell(done: int, _total: int, info: PyTree) -> None:
        progress(done, f"on time {float(np.mean(info.reward)):.3f}")

    settings = PPOConfig(
        horizon_s=config.horizon * books.time_unit_s, gae_lambda=config.gae_lambda, kl_to_clone=0.0,
        entropy=config.entropy, learning_rate=config.learning_rate, critic_hidden=(64, 32),
    )  # fmt: skip
    state, info = train_resumable(
        jax.random.key(seed), ppo(example, settings, network=_network(example)), _own(world, books, today, config),
        config.num_updates, updates_per_chunk=10, on_chunk=tell,
    )  # fmt: skip
    params = jax.tree.map(np.asarray, state.params.actor)
    return Oracle(world.name, day, params), np.asarray(info.reward)


def _shape(world: World, config: OracleConfig) -> tuple[int, int]:
    """Steps of an episode, and episodes of an update (a multiple of four)."""
    steps = max(round(config.turnovers * sum(node.cpu_cores for node in world.nodes)), config.least_steps)
    return steps, 4 * max(round(config.requests_per_update / steps / 4), 1)


def _begin_s(key: Array, today: DayConditions, num_streams: int) -> Array:
    return jax.random.uniform(key, (num_streams,)) * jnp.asarray(today.day_s)


def _own(world: World, books: PlacementConfig, today: DayConditions, config: OracleConfig) -> Experience:
    """Episodes that the learner's own policy plays."""
    num_steps, num_streams = _shape(world, config)

    def act(today: DayConditions, key: Array, policy: Policy) -> Trajectory:
        key_begin, key_run = jax.random.split(key)
        system = _seeing(world, books, today, _begin_s(key_begin, today, num_streams))
        return rollout(key_run, system, policy, num_steps, (num_streams,))

    return Partial(act, jax.tree.map(jnp.asarray, today))


def write_oracle(
    world: World,
    day: int,
    config: OracleConfig,
    out: Path,
    *,
    sources: Mapping[str, str] | None = None,
    seed: int = 0,
    replace: bool = False,
    progress: Callable[[int, str], None] = lambda done, what: None,
) -> dict[str, object]:
    """Trains an oracle and keeps it as a product; `sources` says what it is made from. Returns the manifest's facts."""
    facts: dict[str, object] = {"preset": world.name, "day": day}
    settings = asdict(config)
    with writing(
        out, KIND, made_from=sources, config=settings, seed=seed, extra=facts, replace=replace
    ) as folder:
        oracle, curve = train_oracle(world, day, config, seed=seed, progress=progress)
        save_arrays(folder / _FILE, oracle.params)
        facts["on_time_in_training"] = [round(float(value), 4) for value in curve]
    return facts


def load_oracle(path: Path, world: World) -> Oracle:
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
    like = oracle_network(world).init(jax.random.key(0))
    return Oracle(world.name, int(facts["day"]), load_arrays(path / _FILE, like))

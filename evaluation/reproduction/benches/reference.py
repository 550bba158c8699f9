"""The reference: the strongest rule, given all that is hidden, then PPO in a simulated world itself; a ceiling.

It is not deployable: it sees all that policies see and what is hidden besides (`reference_view.py`).
Before it learns it decides by the rule `expected_on_time` of hidden quantities,

    logits = sharpness * (chance of being accepted and in time - price * time of a core taken - tilt * ln(size) * rank
                          + correction),

its price and then its tilt, by which long requests are kept from short ones, tuned in the truth of that day and the
correction zero. Then it is trained in the truth, which includes the effect of decisions on later requests, from two
starts: a sharp one that stays near the rule, and one that explores far more (`SHARPNESS`). The better goes on; its
budget is doubled until that gains less than `TOLERANCE`, and the best seen is kept, the rule itself among them.
Episodes begin empty at random times of day. It decides greedily. A policy that beats it shows that it is no ceiling:
tables refuse that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evaluation.reproduction.benches.reference_view import (
    NODE_NUMBERS,
    mean_work_s,
    reference_global_view,
    reference_view,
)
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.failures import on_clock
from evaluation.simulator.names import Names, names_in
from evaluation.simulator.revealing import Known, reveal_in, revealing
from evaluation.simulator.truth import truth_response
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import Stage, unseen
from logs_schema.settings import refuse_below_one
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.distributions import greedy
from offline_rl.losses import mask_logits, weighted_mean
from offline_rl.networks import Actor, Example, example_of, greedy_policy
from offline_rl.rules.tuning import successive_halving
from offline_rl.scorer import ScorerConfig, scorer
from offline_rl.selecting import Selected, train_selecting
from offline_rl.training_loop import Experience
from twin.arrays import load_arrays, save_arrays
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.rollout import rollout

KIND = "reference"
FORM = 3
"""Version of what references see and how they learn; raised with any change to either, so that none is mixed up."""
_FILE = "reference.npz"
NETWORK = ScorerConfig(hidden=(16, 16), identity=False, pooled=True)
"""One small network for all nodes: their numbers say all that there is to know."""
SHARPNESS = (120.0, 15.0)
"""Nats for the whole of a chance: of the start that stays near the rule, and of the one that explores."""
PRICES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Prices of a core for the mean work, in units of probability; tuned in the truth."""
TILTS = (0.0, 0.01, -0.01, 0.03, -0.03, 0.1, -0.1, 0.3)
"""What a request e times as long may lose on the fastest node, and gain on the slowest, in chances; likewise tuned."""
TOLERANCE = 0.002
"""On-time share that a doubled budget must gain to be doubled again."""
_START = "start"


@dataclass(frozen=True)
class ReferenceConfig:
    """How a reference is trained.

    Attributes:
        num_updates: PPO updates, each on fresh episodes; doubled while that gains `TOLERANCE`.
        most_updates: Of all doublings together.
        updates_per_look: Updates between two evaluations of the greedy policy, on episodes kept for that.
        requests_per_update: Requests of an update's episodes, about; an evaluation has as many.
        turnovers: Requests of an episode, for every core of the world.
        least_steps: Fewest requests of an episode.
        horizon: Time after which a reward counts 1/e, in units of the world's mean work.
        gae_lambda, entropy, learning_rate: See `PPOConfig`.
        depth: Requests that a node's books hold.
    """

    num_updates: int = 20
    most_updates: int = 160
    updates_per_look: int = 5
    requests_per_update: int = 32_768
    turnovers: float = 8.0
    least_steps: int = 800
    horizon: float = 4.0
    gae_lambda: float = 0.8
    entropy: float = 0.0
    learning_rate: float = 1e-3
    depth: int = 24

    def __post_init__(self) -> None:
        refuse_below_one(
            "bench reference",
            num_updates=self.num_updates,
            updates_per_look=self.updates_per_look,
            requests_per_update=self.requests_per_update,
            least_steps=self.least_steps,
            depth=self.depth,
        )
        if not self.turnovers > 0.0:
            raise ConfigError(
                f"turnovers = {self.turnovers:g}", where="bench reference", allowed="more than 0"
            )
        if self.most_updates < self.num_updates:
            raise ConfigError(
                f"{self.most_updates} updates at most, {self.num_updates} at first",
                where="bench reference",
                allowed="at least as many at most as at first",
            )

    def of_length(self, num_updates: int) -> "ReferenceConfig":
        """The same with so many updates at first, eight times as many at most."""
        return replace(self, num_updates=num_updates, most_updates=8 * num_updates)


class TruthReference(NamedTuple):
    """A trained reference."""

    preset: str
    day: int
    params: PyTree  # of the actor


class ReferenceTraining(NamedTuple):
    """What training a reference came to."""

    reference: TruthReference
    price: float
    tilt: float
    evaluations: np.ndarray  # on-time share of the greedy policy on episodes kept for that, the rule's first
    num_updates: int
    last_gain: float  # what the last doubling gained


def problem_config(world: World, depth: int) -> PlacementConfig:
    """The placement problem of a world; its unit of time is the mean work of a service."""
    unit_s = mean_work_s(world)
    return PlacementConfig(depth=depth, time_unit_s=round(unit_s, 3), memory_s=round(10.0 * unit_s, 3))


def reference_network(world: World) -> Actor:
    """The actor of this world's references; its parameters have the same shapes in every world."""
    return _network(_example(world, problem_config(world, depth=1)))


def _network(example: Example) -> Actor:
    learned = scorer(example, NETWORK)
    cost, chance, separation = (NODE_NUMBERS.index(name) for name in ("cost", "chance", "separation"))

    def init(key: Array) -> PyTree:
        layers = learned.init(key)["params"]
        layers = {**layers, "score": jax.tree.map(jnp.zeros_like, layers["score"])}
        return _begun({"params": layers}, PRICES[0], TILTS[0], SHARPNESS[0])

    def logits(params: PyTree, observation: PyTree, legal: Array) -> Array:
        layers = dict(params["params"])
        start = jax.lax.stop_gradient(layers.pop(_START))
        nodes = observation.node
        score = nodes[chance] - start["price"] * nodes[cost] - start["tilt"] * nodes[separation]
        score = score + learned.logits({"params": layers}, observation, jnp.ones_like(legal))
        return mask_logits(start["sharpness"] * score, legal)

    return Actor(init, logits)


def reference_choice(
    network: Actor,
    params: PyTree,
    world: World,
    names: Names,
    known: DayConditions,
    state: Known,
    legal: Array,
) -> Array:
    """The reference's decision [1, *streams], knowing the tables of the day `known`."""
    return greedy(network.logits(params, reference_view(world, names, known, state), legal))


def _seeing(
    world: World, config: PlacementConfig, today: DayConditions, begin_s: Array | float = 0.0
) -> Environment:
    """The truth of a day, observed as a reference of that day observes it."""
    cluster = cluster_of(world)
    names = names_in(world, cluster)
    response = truth_response(world, cluster, config.depth, today, names, begin_s=begin_s)
    known = on_clock(world, today, begin_s)
    problem, response = revealing(placement(cluster, config), response, reveal_in(world, today, names))
    problem = problem._replace(
        observe=lambda state: reference_view(world, names, known, state),
        observe_global=lambda state: reference_global_view(world, names, known, state),
    )
    return environment(problem, response)


def _example(world: World, config: PlacementConfig) -> Example:
    return example_of(_seeing(world, config, conditions(world, 0)))


def train_reference(
    world: World,
    day: int,
    config: ReferenceConfig,
    *,
    seed: int = 0,
    progress: Stage = unseen,
) -> ReferenceTraining:
    """Trains a reference for one day.

    Args:
        world: A validated world.
        day: Days since day 0, >= 0.
        config: How.
        seed: Of everything drawn.
        progress: Called with the number of updates done, and how it goes.

    Returns:
        The reference, and how it came about.
    """
    if day < 0:
        raise ConfigError(f"day {day}", where="bench reference", allowed="0 and later")
    books = problem_config(world, config.depth)
    example, today = _example(world, books), conditions(world, day)
    network, own = _network(example), _own(world, books, today, config)
    key_price, key_evaluation, key_train = jax.random.split(jax.random.key(seed), 3)
    start = network.init(jax.random.fold_in(key_train, 1))

    @jax.jit
    def play(own: Experience, params: PyTree, keys: Array) -> Array:
        def one(params: PyTree, key: Array) -> Array:
            episodes = own(key, greedy_policy(network, params))
            return weighted_mean(episodes.reward, (episodes.active & episodes.settled).astype(jnp.float32))

        return jax.lax.map(lambda pair: one(*pair), (params, keys))

    def tuned(key: Array, numbers: Sequence[tuple[float, float]]) -> tuple[float, float]:
        candidates = [_begun(start, price, tilt, SHARPNESS[0]) for price, tilt in numbers]
        return numbers[successive_halving(key, lambda *arguments: play(own, *arguments), candidates).best]

    progress(0, text="tuning the rule of hidden quantities")
    price, _ = tuned(key_price, [(price, TILTS[0]) for price in PRICES])
    price, tilt = tuned(jax.random.fold_in(key_price, 1), [(price, tilt) for tilt in TILTS])
    settings = PPOConfig(
        horizon_s=config.horizon * books.time_unit_s,
        gae_lambda=config.gae_lambda,
        kl_to_clone=0.0,
        entropy=config.entropy,
        learning_rate=config.learning_rate,
        critic_hidden=(64, 32),
    )

    def evaluate(state: PyTree) -> float:
        params = jax.tree.map(lambda leaf: leaf[None], state.params.actor)
        return float(play(own, params, key_evaluation[None])[0])

    def train(folder: str, sharpness: float, algorithm: Algorithm, total: int) -> Selected:
        return train_selecting(
            key_train, algorithm, own, total, evaluate, updates_per_look=config.updates_per_look,
            checkpoint=Path(folder) / f"from-{sharpness:g}.npz",
            on_evaluation=lambda done, seen: progress(
                done, text=f"on time {seen:.4f}, start of {sharpness:g} nats"
            ),
        )  # fmt: skip

    with TemporaryDirectory() as folder:
        starts = {sharpness: _begun(start, price, tilt, sharpness) for sharpness in SHARPNESS}
        ways = [
            partial(train, folder, sharpness, ppo(example, settings, begun, network))
            for sharpness, begun in starts.items()
        ]
        way = max(ways, key=lambda way: float(way(config.num_updates).evaluations.max()))
        found, gain = _until_settled(way, config)
    params = jax.tree.map(np.asarray, found.best.params.actor)
    num_updates = len(found.info.reward)
    reference = TruthReference(world.name, day, params)
    return ReferenceTraining(reference, price, tilt, found.evaluations, num_updates, gain)


def _begun(start: PyTree, price: float, tilt: float, sharpness: float) -> PyTree:
    """The parameters with these numbers of the start."""
    values = {"price": price, "tilt": tilt, "sharpness": sharpness}
    numbers = {name: jnp.float32(value) for name, value in values.items()}
    return {"params": {**start["params"], _START: numbers}}


def _until_settled(train: Callable[[int], Selected], config: ReferenceConfig) -> tuple[Selected, float]:
    """Training continued to twice its updates while the last doubling gained at least `TOLERANCE`, and that gain."""
    total = config.num_updates
    while True:
        found = train(total)
        half = total // 2 // config.updates_per_look
        gain = float(found.evaluations.max() - found.evaluations[: half + 1].max())
        if gain < TOLERANCE or 2 * total > config.most_updates:
            return found, gain
        total *= 2


def _shape(world: World, config: ReferenceConfig) -> tuple[int, int]:
    """Steps of an episode, and episodes of an update (a multiple of four)."""
    steps = max(round(config.turnovers * sum(node.cpu_cores for node in world.nodes)), config.least_steps)
    return steps, 4 * max(round(config.requests_per_update / steps / 4), 1)


def _begin_s(key: Array, today: DayConditions, num_streams: int) -> Array:
    return jax.random.uniform(key, (num_streams,)) * jnp.asarray(today.day_s)


def _own(world: World, books: PlacementConfig, today: DayConditions, config: ReferenceConfig) -> Experience:
    """Episodes that the learner's own policy plays."""
    num_steps, num_streams = _shape(world, config)

    def act(today: DayConditions, key: Array, policy: Policy) -> Trajectory:
        key_begin, key_run = jax.random.split(key)
        system = _seeing(world, books, today, _begin_s(key_begin, today, num_streams))
        return rollout(key_run, system, policy, num_steps, (num_streams,))

    return Partial(act, jax.tree.map(jnp.asarray, today))


def write_reference(
    world: World,
    day: int,
    config: ReferenceConfig,
    out: Path,
    *,
    sources: Mapping[str, str] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Stage = unseen,
) -> dict[str, object]:
    """Trains a reference and keeps it as a product, made from `sources`. Returns the manifest's facts."""
    facts: dict[str, object] = {"preset": world.name, "day": day}
    settings = asdict(config)
    with writing(
        out, KIND, made_from=sources, config=settings, seed=seed, extra=facts, replace=overwrite
    ) as folder:
        trained = train_reference(world, day, config, seed=seed, progress=progress)
        save_arrays(folder / _FILE, trained.reference.params)
        facts |= {"price": trained.price, "tilt": trained.tilt}
        facts["num_updates"] = trained.num_updates
        facts["last_gain"] = round(trained.last_gain, 4)
        facts["on_time_in_looks"] = [round(float(value), 4) for value in trained.evaluations]
    return facts


def load_reference(path: Path, world: World) -> TruthReference:
    """Reads a reference of `world`.

    Raises:
        ProductError: there is none, or it cannot be read.
        ConfigError: it was trained in another world.
    """
    facts = read_manifest(path, KIND).extra
    if facts["preset"] != world.name:
        raise ConfigError(
            f"the reference was trained in {facts['preset']!r}, not in {world.name!r}",
            where=str(path),
            allowed=f"a reference of {world.name}",
            advice="train one: schedtwin bench reference",
        )
    like = reference_network(world).init(jax.random.key(0))
    return TruthReference(world.name, int(facts["day"]), load_arrays(path / _FILE, like))

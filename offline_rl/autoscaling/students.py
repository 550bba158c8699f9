"""Light policies, one a deployment, that imitate a teacher from what a deployment sees of itself.

    minimise over students   mean (teacher's action - student's action)^2                 (paper DRPC, equation 9)

All students are trained at once, as one network whose parameters have a deployment axis. Discrete students choose for
cores, memory and replicas among a step down, nothing and a step up, and imitate which of them the teacher took.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from offline_rl.errors import TrainingError
from twin.autoscaling.observing import LOCAL_FEATURES, Seen
from twin.autoscaling.problem import ScalingAction
from twin.contracts import Array, Interval, Policy, PyTree
from twin.descent import descend_in_batches
from twin.networks import MLP, apply

Learned = TypeVar("Learned")
NUM_NUMBERS, NUM_CHOICES = 3, 3
MOST_PARAMETERS = 1000


@dataclass(frozen=True)
class StudentConfig:
    """How students are trained.

    Attributes:
        hidden: Widths of the hidden layers.
        discrete: Whether they choose steps instead of numbers.
        updates: Steps of gradient descent.
        batch: Moments of a step.
        learning_rate: Of Adam.
        dead_zone: Actions up to this size are nothing, to discrete students.
    """

    hidden: tuple[int, ...] = (20, 12)
    discrete: bool = False
    updates: int = 3000
    batch: int = 256
    learning_rate: float = 3e-3
    dead_zone: float = 0.5


class Lessons(NamedTuple):
    """What a teacher did; places in [-1, 1] of its reach."""

    local: Array  # [features, deployments, moments]
    place: Array  # [3, deployments, moments]


class Students(NamedTuple):
    """Trained students."""

    params: PyTree  # leaves [deployments, ...]
    loss: Array  # [updates]


def lessons_of(seen: Seen, action: ScalingAction, legal: ScalingAction) -> Lessons:
    """Lessons from observations and actions, leaves [..., deployments, *streams]."""
    places = [number / jnp.maximum(entry.high, 1e-6) for number, entry in zip(action, legal, strict=True)]
    local = seen.local
    return Lessons(local.reshape(*local.shape[:2], -1), jnp.stack(places).reshape(3, local.shape[1], -1))


def learned_in_rounds(
    key: Array,
    rounds: int,
    begin: Callable[[Array], Lessons],
    go_on: Callable[[Array, Learned], Lessons],
    train: Callable[[Array, Lessons, Learned | None], Learned],
) -> Learned:
    """What is learned from the lessons of several rounds (DAgger; Ross, Gordon and Bagnell 2011).

    Args:
        key: Of chance.
        rounds: Of lessons; what is learned in one acts in the next.
        begin: Chance -> lessons of the first round.
        go_on: (chance, what was learned) -> lessons of a later one, as many.
        train: (chance, lessons of all rounds, what was learned before) -> what is learned.
    """
    keys = jax.random.split(key, (rounds, 2))
    lessons = [begin(keys[0, 0])] * rounds  # one shape, one program, in all rounds
    learned = train(keys[0, 1], _joined(lessons), None)
    for place, (key_play, key_fit) in enumerate(keys[1:], 1):
        lessons[place] = go_on(key_play, learned)
        learned = train(key_fit, _joined(lessons), learned)
    return learned


def _joined(lessons: Sequence[Lessons]) -> Lessons:
    """The lessons of several rounds as one."""
    return Lessons(*(jnp.concatenate(leaves, axis=-1) for leaves in zip(*lessons, strict=True)))


def num_parameters(config: StudentConfig) -> int:
    """Parameters of one student."""
    outputs = NUM_NUMBERS * (NUM_CHOICES if config.discrete else 1)
    widths = (len(LOCAL_FEATURES), *config.hidden, outputs)
    return sum((one + 1) * other for one, other in pairwise(widths))


def train_students(key: Array, lessons: Lessons, config: StudentConfig) -> Students:
    """Trains a student for every deployment.

    Raises:
        TrainingError: A student has more than `MOST_PARAMETERS` parameters.
    """
    if num_parameters(config) > MOST_PARAMETERS:
        raise TrainingError(
            f"a student of {num_parameters(config)} parameters",
            allowed=f"{MOST_PARAMETERS} at most",
            advice="choose narrower hidden layers",
        )
    network, num_deployments = _network(config), lessons.local.shape[1]
    key_init, key_updates = jax.random.split(key)
    first = jnp.zeros((len(LOCAL_FEATURES), 1))
    params = jax.vmap(lambda key: network.init(key, first))(jax.random.split(key_init, num_deployments))
    return Students(*_descent(config)(params, lessons, key_updates))


@lru_cache(maxsize=8)  # all who learn alike share one traced program
def _descent(config: StudentConfig) -> Callable[[PyTree, Lessons, Array], tuple[PyTree, Array]]:
    network, optimizer = _network(config), optax.adam(config.learning_rate)

    def loss(params: PyTree, lessons: Lessons) -> Array:
        outputs = _outputs(network, params, lessons.local)
        if not config.discrete:
            return jnp.mean((jnp.tanh(outputs) - jnp.clip(lessons.place, -1.0, 1.0)) ** 2)
        logits = outputs.reshape(NUM_NUMBERS, NUM_CHOICES, *outputs.shape[1:])
        choice = 1 + jnp.sign(lessons.place).astype(jnp.int32) * (jnp.abs(lessons.place) > config.dead_zone)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), choice[:, None], axis=1)
        return -jnp.mean(chosen)

    @jax.jit
    def run(params: PyTree, lessons: Lessons, key: Array) -> tuple[PyTree, Array]:
        def some(key: Array) -> Lessons:
            chosen = jax.random.randint(key, (config.batch,), 0, lessons.local.shape[-1])
            return Lessons(lessons.local[..., chosen], lessons.place[..., chosen])

        keys = jax.random.split(key, config.updates)
        params, _, losses = descend_in_batches(optimizer, loss, some, keys, params)
        return params, losses

    return run


def student_policy(params: PyTree, config: StudentConfig, *, sampled: bool = False) -> Policy:
    """What the students decide together, each from its own observation; discrete ones may draw from their choices."""
    network = _network(config)

    def decide(key: Array, observation: Seen, legal: ScalingAction) -> ScalingAction:
        outputs = _outputs(network, params, observation.local)
        if config.discrete:
            logits = outputs.reshape(NUM_NUMBERS, NUM_CHOICES, *outputs.shape[1:])
            choice = jax.random.categorical(key, logits, axis=1) if sampled else jnp.argmax(logits, axis=1)
            place = choice.astype(jnp.float32) - 1.0
        else:
            place = jnp.tanh(outputs)
        return ScalingAction(*(one * entry.high for one, entry in zip(place, legal, strict=True)))

    return decide


def _network(config: StudentConfig) -> MLP:
    return MLP(config.hidden, NUM_NUMBERS * (NUM_CHOICES if config.discrete else 1), activation=jnp.tanh)


def _outputs(network: MLP, params: PyTree, local: Array) -> Array:
    """[outputs, deployments, *streams] of local features [features, deployments, *streams]."""
    mapped: Callable[[PyTree, Array], Array] = jax.vmap(
        lambda one, features: apply(network, one, features), in_axes=(0, 1), out_axes=1
    )
    return mapped(params, local)


def taught(policy: Policy, reach: tuple[float, float, float]) -> Callable[[Seen], ScalingAction]:
    """What a policy would do, as a function of observations [features, deployments, *streams]."""

    def label(seen: Seen) -> ScalingAction:
        ones = jnp.ones(seen.local.shape[1:])
        legal = ScalingAction(*(Interval(-most * ones, most * ones) for most in reach))
        return policy(jax.random.key(0), seen, legal)

    return label

"""The steps between two evaluations, as one program: likelihood alone while warming, then the game.

The networks of `State.generator` are those that draw. Where durations were made wider or narrower once a fit had ended
(`placement.spread`), the likelihood is that of the networks as they were fitted: it would undo what was settled.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from twin.contracts import Array, PyTree
from twin.imitation.config import ImitationConfig
from twin.imitation.decisions import LoggedDecisions, some_windows
from twin.imitation.discriminator import (
    discriminator_loss,
    discriminator_network,
    num_row_features,
    scores_of,
)
from twin.imitation.game import (
    ImitatedRollout,
    Likelihood,
    again,
    generated_rows,
    likelihood,
    logged_rows,
    play,
    played,
    verdicts,
)
from twin.imitation.generator import Limits, ResponseGenerator, draw_noise, init_generator, widened
from twin.imitation.proximal import critic_network, prepare, proximal_loss
from twin.placement.encoding import Encoding
from twin.placement.features import request_features
from twin.placement.learned import num_inputs
from twin.placement.types import Leaf
from twin.placement.windows import Windows, take

NORM = 1.0
"""Gradients of the generator are cut to this norm."""


class State(NamedTuple):
    """All that the next step needs."""

    generator: ResponseGenerator
    mean: ResponseGenerator  # over the steps of the game, by `ImitationConfig.memory`
    critic: PyTree
    discriminator: PyTree
    generator_optimiser: PyTree
    discriminator_optimiser: PyTree


class ImitationData(NamedTuple):
    """Logged windows, as decisions and as arrivals."""

    logged: LoggedDecisions
    windows: Windows
    known_until_s: Leaf  # [W] on the windows' clocks: later than this the log has no ends
    widening: Leaf  # [NUM_OUTPUTS] what was added to the fitted networks' outputs


def _optimisers(config: ImitationConfig) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    generator = optax.chain(optax.clip_by_global_norm(NORM), optax.scale_by_adam())
    return generator, optax.adam(config.discriminator.learning_rate, b1=0.5)


def init_state(key: Array, encoding: Encoding, config: ImitationConfig) -> State:
    """Random parameters, fresh optimisers."""
    key_generator, key_critic, key_discriminator = jax.random.split(key, 3)
    cluster = encoding.cluster
    generator = init_generator(key_generator, cluster, config)
    critic = critic_network(config).init(key_critic, jnp.zeros((num_inputs(cluster), 1)))
    width = num_row_features(cluster, len(request_features(cluster)), config.discriminator)
    discriminator = discriminator_network(config.discriminator).init(key_discriminator, jnp.zeros((width, 1)))
    of_generator, of_discriminator = _optimisers(config)
    optimisers = of_generator.init((generator, critic)), of_discriminator.init(discriminator)
    return State(generator, generator, critic, discriminator, *optimisers)


Updates = Callable[[Array, State, ImitationData, int, int], tuple[State, dict[str, Array]]]
WARM, ENGINE, GAME = "likelihood of answers and engine", "likelihood of the engine alone", "game"


def updates(encoding: Encoding, config: ImitationConfig, limits: Limits, phase: str) -> Updates:
    """The compiled `(key, state, data, first, count) -> state, info`; info is the mean over the steps."""
    one = _game_step if phase == GAME else partial(_warm_step, only_engine=phase == ENGINE)

    @jax.jit
    def run(
        key: Array, state: State, data: ImitationData, limits: Limits, first: Array, count: Array
    ) -> tuple[State, dict[str, Array]]:
        def body(index: Array, carry: tuple) -> tuple:
            state, total = carry
            state, info = one(jax.random.fold_in(key, first + index), state, data, encoding, config, limits)
            return state, jax.tree.map(jnp.add, total, info)

        none = {name: jnp.float32(0.0) for name in _INFO}
        state, total = jax.lax.fori_loop(0, count, body, (state, none))
        return state, jax.tree.map(lambda leaf: leaf / count, total)

    def call(
        key: Array, state: State, data: ImitationData, first: int, count: int
    ) -> tuple[State, dict[str, Array]]:
        lone = data._replace(windows=data.windows._replace(num_overflow=0))
        return run(key, state, lone, limits, jnp.int32(first), jnp.int32(count))

    return call


_INFO = ("likelihood", "accuracy_logged", "accuracy_generated", "refused")


def _some(key: Array, data: ImitationData, config: ImitationConfig) -> ImitationData:
    """The windows of one step."""
    available = data.windows.arrival_s.shape[1]
    chosen = jax.random.choice(key, available, (config.num_streams,), replace=available < config.num_streams)
    lone = data.windows._replace(num_overflow=None)
    windows = take(lone, chosen)._replace(num_overflow=0)
    known_until_s = jnp.take(jnp.asarray(data.known_until_s), chosen)
    return ImitationData(some_windows(data.logged, chosen), windows, known_until_s, data.widening)


def at_start_of_game(state: State, generator: ResponseGenerator, config: ImitationConfig) -> State:
    """The state in which a game begins from `generator`, its optimiser fresh."""
    optimiser, _ = _optimisers(config)
    fresh = optimiser.init((generator, state.critic))
    return state._replace(generator=generator, mean=generator, generator_optimiser=fresh)


def fitted_likelihood(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    logged: LoggedDecisions,
    widening: Leaf,
) -> Likelihood:
    """`likelihood` of the networks as they were fitted, from those that draw."""
    return likelihood(encoding, config, widened(config, generator, -jnp.asarray(widening)), logged)


def _moved(
    state: State, gradient: PyTree, config: ImitationConfig, learning_rate: float
) -> tuple[ResponseGenerator, PyTree, PyTree]:
    optimiser, _ = _optimisers(config)
    both = state.generator, state.critic
    steps, after = optimiser.update(gradient, state.generator_optimiser, both)
    generator, critic = jax.tree.map(lambda old, step: old - learning_rate * step, both, steps)
    return generator, critic, after


def _warm_step(
    key: Array,
    state: State,
    data: ImitationData,
    encoding: Encoding,
    config: ImitationConfig,
    _limits: Limits,
    *,
    only_engine: bool = False,
) -> tuple[State, dict[str, Array]]:
    some = _some(key, data, config)

    def loss(both: tuple[ResponseGenerator, PyTree]) -> Array:
        likelihood = fitted_likelihood(encoding, config, both[0], some.logged, some.widening)
        return -likelihood.engine if only_engine else -(likelihood.answers + likelihood.engine)

    value, gradient = jax.value_and_grad(loss)((state.generator, state.critic))
    generator, critic, after = _moved(state, gradient, config, config.learning_rate)
    state = state._replace(generator=generator, mean=generator, critic=critic, generator_optimiser=after)
    none = jnp.float32(jnp.nan)
    return state, {"likelihood": -value, "accuracy_logged": none, "accuracy_generated": none, "refused": none}


def _game_step(
    key: Array, state: State, data: ImitationData, encoding: Encoding, config: ImitationConfig, limits: Limits
) -> tuple[State, dict[str, Array]]:
    key_windows, key_noise = jax.random.split(key)
    some = _some(key_windows, data, config)
    num_steps, num_windows = some.windows.arrival_s.shape
    noise = draw_noise(key_noise, num_steps, num_windows, encoding.cluster.num_nodes)
    seen = played(play(encoding, config, state.generator, limits, some.windows, noise), noise)
    drawn = jax.lax.stop_gradient(again(encoding, config, state.generator, limits, seen))
    shown, counts = generated_rows(encoding, config, seen, drawn, some.known_until_s)
    real = logged_rows(encoding, config, some.logged)

    def loss_of(parameters: PyTree) -> tuple[Array, PyTree]:
        return discriminator_loss(config.discriminator, parameters, real, some.logged.known, shown, counts)

    gradient, verdict = jax.grad(loss_of, has_aux=True)(state.discriminator)
    _, optimiser = _optimisers(config)
    steps, of_discriminator = optimiser.update(gradient, state.discriminator_optimiser, state.discriminator)
    discriminator = optax.apply_updates(state.discriminator, steps)
    state = state._replace(discriminator=discriminator, discriminator_optimiser=of_discriminator)
    improve = _by_ppo if config.use_ppo else _pathwise
    state, likelihood = improve(state, some, seen, encoding, config, limits)
    state = state._replace(mean=optax.incremental_update(state.generator, state.mean, 1.0 - config.memory))
    valid = jnp.maximum(jnp.sum(seen.valid), 1)
    refused = jnp.sum(jnp.where(seen.valid, 1.0 - drawn.drawn.accepted, 0.0)) / valid
    info = {
        "likelihood": likelihood,
        "accuracy_logged": verdict.accuracy_logged,
        "accuracy_generated": verdict.accuracy_generated,
        "refused": refused,
    }
    return state, info


def _pathwise(
    state: State,
    some: ImitationData,
    seen: ImitatedRollout,
    encoding: Encoding,
    config: ImitationConfig,
    limits: Limits,
) -> tuple[State, Array]:
    """One step along the discriminator's gradient through the drawn answers, likelihood kept."""

    def loss(both: tuple[ResponseGenerator, PyTree]) -> tuple[Array, Array]:
        likelihood = fitted_likelihood(encoding, config, both[0], some.logged, some.widening)
        drawn = again(encoding, config, both[0], limits, seen)
        shown, counts = generated_rows(encoding, config, seen, drawn, some.known_until_s)
        cheated = verdicts(config, state.discriminator, shown, counts)
        known = likelihood.answers + likelihood.engine
        return config.adversary * cheated - config.anchor * known, known

    gradient, known = jax.grad(loss, has_aux=True)((state.generator, state.critic))
    generator, critic, after = _moved(state, gradient, config, config.game_learning_rate)
    return state._replace(generator=generator, critic=critic, generator_optimiser=after), known


def _by_ppo(
    state: State,
    some: ImitationData,
    seen: ImitatedRollout,
    encoding: Encoding,
    config: ImitationConfig,
    limits: Limits,
) -> tuple[State, Array]:
    """Several passes of PPO over the rollout."""
    drawn = jax.lax.stop_gradient(again(encoding, config, state.generator, limits, seen))
    shown, _ = generated_rows(encoding, config, seen, drawn, some.known_until_s)
    reward = jax.nn.softplus(-scores_of(config.discriminator, state.discriminator, shown))
    batch = prepare(encoding, config, state.generator, state.critic, seen, drawn, reward)

    def loss(both: tuple[ResponseGenerator, PyTree]) -> Array:
        return proximal_loss(encoding, config, *both, seen, drawn, batch)

    def epoch(_: Array, state: State) -> State:
        gradient = jax.grad(loss)((state.generator, state.critic))
        generator, critic, after = _moved(state, gradient, config, config.game_learning_rate)
        return state._replace(generator=generator, critic=critic, generator_optimiser=after)

    likelihood = fitted_likelihood(encoding, config, state.generator, some.logged, some.widening)
    return jax.lax.fori_loop(0, config.epochs, epoch, state), likelihood.answers + likelihood.engine

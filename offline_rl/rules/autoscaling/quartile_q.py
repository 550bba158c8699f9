"""CoScal (Xu et al. 2022): quartiles of use, predicted load, and a table of action values learned by Q-learning.

    Q(s, a) <- Q(s, a) + rate (r + discount max Q(s', .) - Q(s, a))

for every deployment: s holds the quartile of its processor use and of its memory use, whether the load is predicted to
fall, stay or rise, and whether the objective is kept; a is nothing, a replica more or fewer, or a step of cores more or
fewer. The table is learned in the twin, many streams at once: all that met a state and action move it by their mean.
The load is predicted by daily profile and trend, where the publication uses a recurrent network.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along, free_config
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import cpu_use
from twin.autoscaling.problem import action_towards, autoscaling_problem
from twin.autoscaling.rewards import Reward, earned
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants, quantile_s
from twin.autoscaling.workload import BIN_S, LoadModel, known_profile
from twin.contracts import Array, Response
from twin.environment import environment

QUARTILES, TRENDS, KEPT = 4, 3, 2
NUM_STATES = QUARTILES * QUARTILES * TRENDS * KEPT
MOVES = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
"""Replicas, and steps of cores, of every action."""
TREND = 0.08
"""Change of the logarithm of the load over `AHEAD` intervals that counts as a rise or fall."""
AHEAD = 4


class QuartileConfig(NamedTuple):
    """How the table is learned: intervals and streams in the twin, and the usual constants."""

    steps: int = 1500
    streams: int = 24
    rate: float = 0.1
    discount: float = 0.9
    explore: float = 0.15


def state_index(config: AutoscalingConfig, load: LoadModel, state: ScalingState) -> Array:
    """[deployments, *streams] number of the state that each deployment is in."""
    now, before = known(config, state), known(config, state, AHEAD)
    use = jnp.clip(jnp.floor(QUARTILES * cpu_use(now, state.grants)), 0, QUARTILES - 1)
    memory = now.measured.memory_gib_used / jnp.maximum(state.grants.memory_gib, 1e-6)
    memory = jnp.clip(jnp.floor(QUARTILES * memory), 0, QUARTILES - 1)
    profile = jnp.asarray(known_profile(load), jnp.float32)
    place = (now.time_s / BIN_S).astype(jnp.int32)
    ahead = ((now.time_s + AHEAD * config.interval_s) / BIN_S).astype(jnp.int32)
    expected = profile[ahead % len(profile)] - profile[place % len(profile)]
    trend = jnp.log((now.gateway.rate_per_s + 1e-3) / (before.gateway.rate_per_s + 1e-3))
    change = 0.5 * (expected + trend)
    direction = jnp.where(change > TREND, 2.0, jnp.where(change < -TREND, 0.0, 1.0))
    kept = (quantile_s(now.gateway.latency, config.slo_share) <= config.slo_s).astype(jnp.float32)
    shared = jnp.broadcast_to((direction * KEPT + kept)[None], use.shape)
    return ((use * QUARTILES + memory) * TRENDS * KEPT + shared).astype(jnp.int32)


def moved(config: AutoscalingConfig, limits: GrantLimits, grants: Grants, action: Array) -> Grants:
    """Grants after actions [deployments, *streams]."""
    moves = jnp.asarray(MOVES, jnp.float32)[action]
    low, high = (along(one, grants.replicas) for one in (limits.min_replicas, limits.max_replicas))
    replicas = jnp.clip(grants.replicas + moves[..., 0], jnp.maximum(low, 1.0), high)
    low, high = (along(one, grants.cpu_cores) for one in (limits.min_cpu_cores, limits.max_cpu_cores))
    cores = jnp.clip(grants.cpu_cores + config.cpu_step_cores * moves[..., 1], low, high)
    return grants._replace(replicas=replicas, cpu_cores=cores)


def learn_table(
    key: Array,
    response: Response,
    config: AutoscalingConfig,
    limits: GrantLimits,
    load: LoadModel,
    reward: Reward,
    settings: QuartileConfig | None = None,
) -> Array:
    """Action values [deployments, states, actions], learned in the twin that `response` answers for."""
    settings = settings or QuartileConfig()
    free = free_config(config)
    system = environment(autoscaling_problem(free, limits, reward), response)
    number = limits.max_replicas.shape[0]
    seat = jnp.arange(number)[:, None]

    @jax.jit
    def learn(key: Array) -> Array:
        key_reset, key_steps = jax.random.split(key)

        def one(carry: tuple, key: Array) -> tuple[tuple, None]:
            state, table = carry
            key_explore, key_action, key_step = jax.random.split(key, 3)
            met = state_index(config, load, state.problem)
            best = jnp.argmax(table[seat, met], axis=-1)
            drawn = jax.random.randint(key_action, best.shape, 0, len(MOVES))
            explores = jax.random.uniform(key_explore, best.shape) < settings.explore
            action = jnp.where(explores, drawn, best)
            wanted = moved(config, limits, state.problem.grants, action)
            state, _ = system.step(key_step, state, action_towards(free, state.problem.grants, wanted))
            events = jax.tree.map(lambda leaf: leaf[-1], state.problem.window)
            worth = reward(config, limits, state.problem.grants, earned(config, events))
            following = state_index(config, load, state.problem)
            aim = worth + settings.discount * jnp.max(table[seat, following], axis=-1)
            away = aim - table[seat, met, action]
            total = jnp.zeros_like(table).at[seat, met, action].add(away)
            count = jnp.zeros_like(table).at[seat, met, action].add(1.0)
            return (state, table + settings.rate * total / jnp.maximum(count, 1.0)), None

        first = system.reset(key_reset, (settings.streams,))
        table = jnp.zeros((number, NUM_STATES, len(MOVES)))
        (_, table), _ = jax.lax.scan(one, (first, table), jax.random.split(key_steps, settings.steps))
        return table

    return learn(key)


def quartile_q(config: AutoscalingConfig, limits: GrantLimits, load: LoadModel, table: Array) -> Autoscaler:
    """The autoscaler that takes the best action of the table."""
    seats = table.shape[0]

    def decide(_key: Array, memory: tuple, state: ScalingState) -> tuple[tuple, Grants]:
        met = state_index(config, load, state)
        seat = jnp.arange(seats).reshape((-1,) + (1,) * (met.ndim - 1))
        return memory, moved(config, limits, state.grants, jnp.argmax(table[seat, met], axis=-1))

    return Autoscaler(lambda grants: (), decide)

"""Whole episodes without keeping what was seen: until every job has started, under a rule or a policy."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from twin.contracts import Array, Environment, EnvironmentState, Policy, PyTree, Streams
from twin.ordering.config import Order, OrderingConfig
from twin.ordering.features import observe, observe_packed
from twin.ordering.rows import best_row, numbers
from twin.ordering.states import PoolObservation, PoolState
from twin.ordering.types import Pool

Choose = Callable[[Array, PoolState], Array]
"""(key, state) -> action [1, *streams]."""


def by_order(environment: Environment, order: Order) -> Choose:
    """Chooses the best visible job by an order of the whole queue, as a rule does; its key is not used."""
    legal = environment.problem.legal

    def choose(_key: Array, state: PoolState) -> Array:
        visible = legal(state)[:, 0]
        return best_row(order(state.queue, state.clock)[: visible.shape[0]], visible)[None]

    return choose


def by_policy(environment: Environment, policy: Policy) -> Choose:
    """Chooses as a policy does, from what it may see."""
    problem = environment.problem

    def choose(key: Array, state: PoolState) -> Array:
        action: Array = policy(key, problem.observe(state), problem.legal(state))
        return action

    return choose


Logits = Callable[[PyTree, Array], Array]
"""(observation, legal [places, 1, *streams]) -> masked logits of the same shape."""
PACKED = (16, 12, 8, 6, 4)
"""`by_scorer` makes room for as many jobs as a sixteenth of all places, a twelfth, and so on."""


def by_scorer(pool: Pool, config: OrderingConfig, logits: Logits, sampled: Array | bool = False) -> Choose:
    """Chooses the likeliest job by a scorer that scores each job by itself, for waiting jobs only.

    The visible places of many streams are mostly empty, and features and scores are most of the work. So waiting jobs
    are packed side by side and scored as so many streams of one choice. Where more wait than there is room for, all
    places are scored. The choice is that of `by_policy` with the greedy policy, but for rounding.

    Args:
        pool: The processors.
        config: The problem's.
        logits: Of a scorer without identity that is not pooled. There is one axis of streams.
        sampled: bool: Draw from the scorer's distribution instead.
    """

    places = config.num_visible

    def whole(state: PoolState, num_held: Array) -> Array:
        legal = numbers(places, state.clock) < num_held[None]
        return logits(observe(pool, config, state), legal[:, None])[:, 0]

    def packed(num_jobs: int, state: PoolState, num_held: Array) -> Array:
        seen = observe_packed(pool, config, state, num_held, num_jobs)
        observation = PoolObservation(seen.job[:, None, None], seen.pool[:, None])
        score = logits(observation, jnp.ones((1, 1, num_jobs), bool))[0, 0]
        row = jnp.where(seen.place < 0, places, seen.place)
        lowest = jnp.full((places, len(num_held)), -jnp.inf)
        return lowest.at[row, seen.stream].set(score, mode="drop")

    def drawn(key: Array, scores: Array) -> Array:
        return scores + jax.random.gumbel(key, scores.shape)

    def choose(key: Array, state: PoolState) -> Array:
        num_held = jnp.where(state.deciding, jnp.minimum(state.num_waiting, places), 0)
        sizes = [max(places * len(num_held) // part, 1) for part in PACKED]
        size = jnp.sum(jnp.sum(num_held) > jnp.array(sizes), dtype=jnp.int32)
        ways: list[Callable[[PoolState, Array], Array]] = [*(partial(packed, one) for one in sizes), whole]
        scores = jax.lax.switch(size, ways, state, num_held)
        scores = jax.lax.cond(sampled, drawn, lambda _key, same: same, key, scores)
        return jnp.argmax(scores, axis=0).astype(jnp.int32)[None]

    return choose


def play(
    key: Array, environment: Environment, choose: Choose, streams: Streams, max_steps: int = 2**30
) -> EnvironmentState:
    """Plays until every stream is done.

    Args:
        key: PRNG key.
        environment: Of the ordering problem.
        choose: Who decides.
        streams: Shape of the independent copies.
        max_steps: Most decisions of a stream.

    Returns:
        How the episodes ended; `responses.starts_of` gives when each job started.
    """
    return play_counted(key, environment, choose, streams, max_steps)[0]


def play_counted(
    key: Array, environment: Environment, choose: Choose, streams: Streams, max_steps: int = 2**30
) -> tuple[EnvironmentState, Array]:
    """As `play`, and [] int32 how many actions were not legal: the first legal one took their place."""
    key_reset, key_steps = jax.random.split(key)

    def go_on(carry: tuple[EnvironmentState, Array]) -> Array:
        state, _ = carry
        return ~jnp.all(state.done) & (state.step < max_steps)

    def one(carry: tuple[EnvironmentState, Array]) -> tuple[EnvironmentState, Array]:
        state, num_illegal = carry
        key_choose, key_step = jax.random.split(jax.random.fold_in(key_steps, state.step))
        state, transition = environment.step(key_step, state, choose(key_choose, state.problem))
        return state, num_illegal + jnp.sum(transition.illegal, dtype=jnp.int32)

    return jax.lax.while_loop(go_on, one, (environment.reset(key_reset, streams), jnp.int32(0)))


def actions_of(
    key: Array, environment: Environment, choose: Choose, num_steps: int, streams: Streams
) -> Array:
    """The actions [num_steps, 1, *streams] of an episode, for `twin.rollout.follow` with the same key.

    So a rule that looks at the whole state leaves a trajectory of what a policy would have seen: to be cloned.
    """
    key_reset, key_steps = jax.random.split(key)

    def one(state: EnvironmentState, key_step: Array) -> tuple[EnvironmentState, Array]:
        key_choose, key_response = jax.random.split(key_step)
        state, transition = environment.step(key_response, state, choose(key_choose, state.problem))
        return state, transition.action

    first = environment.reset(key_reset, streams)
    actions: Array = jax.lax.scan(one, first, jax.random.split(key_steps, num_steps))[1]
    return actions

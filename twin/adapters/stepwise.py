"""`reset` and `step` of one stream as pure functions, with a reward at every step; batch them with `vmap`.

Inside the project an outcome is credited to its decision, however late. Here a decision's reward is paid at the step
at which its outcome becomes known; what is still open when the episode ends is paid then, as far as its fate is drawn.
So the sum over an episode is the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, Environment, EnvironmentState, Problem, PyTree, Records
from twin.legality import any_legal


class Episode(NamedTuple):
    """All of one episode, to be handed back to `step`."""

    system: EnvironmentState
    decision_info: PyTree  # leaves [num_steps * seats, ...]: what was known of every decision so far
    paid: Array  # [num_steps * seats] bool: the decision's reward has been given out


class TimeStep(NamedTuple):
    """What an agent gets after a step."""

    observation: PyTree  # leaves [..., seats]
    legal: PyTree  # leaves [choices, seats]
    active: Array  # [seats] bool: seats that must decide; the others' actions are ignored
    reward: Array  # [seats]: of the decisions whose outcome became known in this step
    terminated: Array  # [] bool: the episode has ended for good
    truncated: Array  # [] bool: it has been cut short, or has reached its number of steps
    elapsed_s: Array  # [] since the decision before
    num_open: Array  # [] int32, at the end of the episode: decisions that were never paid


class Stepwise(NamedTuple):
    """The two functions, and the sizes they are made for."""

    reset: Callable[[Array], tuple[Episode, TimeStep]]  # key
    # (key, episode, action leaves [seats]); after the end it changes nothing and pays nothing
    step: Callable[[Array, Episode, PyTree], tuple[Episode, TimeStep]]
    num_seats: int
    num_steps: int


def stepwise(environment: Environment, num_steps: int) -> Stepwise:
    """An environment as `reset` and `step` of one stream.

    Args:
        environment: What to step.
        num_steps: Longest episode.

    Returns:
        Functions to be jitted; nothing resets itself.

    Raises:
        ConfigError: Fewer than one step, or several groups of seats.
    """
    if num_steps < 1:
        raise ConfigError(f"episodes of {num_steps} steps", where="stepwise", allowed="1 step or more")
    problem, num_seats = environment.problem, environment.problem.num_seats
    if problem.groups:
        raise ConfigError(
            f"seats of the groups {list(problem.groups)} act on clocks of their own",
            where="stepwise",
            allowed="seats of one kind",
            advice="step the environment itself",
        )
    total = num_steps * num_seats

    def reset(key: Array) -> tuple[Episode, TimeStep]:
        system = environment.reset(key, ())
        action = any_legal(problem.legal(system.problem))
        shapes = jax.eval_shape(problem.decision_info, system.problem, action)
        decision_info = jax.tree.map(lambda leaf: jnp.zeros((total, *leaf.shape[:-1]), leaf.dtype), shapes)
        episode = Episode(system, decision_info, jnp.zeros(total, bool))
        nothing = jnp.zeros(num_seats, jnp.float32)
        return episode, _look(episode, nothing, jnp.float32(0.0), jnp.array(False))

    def step(key: Array, episode: Episode, action: PyTree) -> tuple[Episode, TimeStep]:
        before = episode.system
        over = before.done | (before.step >= num_steps)
        system, transition = environment.step(key, before, action)
        first = jnp.minimum(before.step, num_steps - 1) * num_seats

        def file(kept: Array, new: Array) -> Array:
            rows = jnp.moveaxis(new, -1, 0).astype(kept.dtype)
            return jax.lax.dynamic_update_slice_in_dim(kept, rows, first, axis=0)

        decision_info = jax.tree.map(file, episode.decision_info, transition.decision_info)
        ends = system.done | (system.step >= num_steps)
        held, settled = problem.remaining(system.problem), environment.settle(system)
        held = jax.tree.map(lambda last, now: jnp.where(ends, last, now), settled, held)
        paid, reward = _pay(problem, episode.paid, decision_info, (transition.left, held))
        following = Episode(system, decision_info, paid)
        following = jax.tree.map(lambda old, new: jnp.where(over, old, new), episode, following)
        look = _look(
            following, jnp.where(over, 0.0, reward), jnp.where(over, 0.0, transition.elapsed_s), ends | over
        )
        return following, look

    def _look(episode: Episode, reward: Array, elapsed_s: Array, ends: Array) -> TimeStep:
        system = episode.system
        made = jnp.minimum(system.step, num_steps) * num_seats
        is_open = ~episode.paid & (jnp.arange(total) < made)
        return TimeStep(
            observation=problem.observe(system.problem),
            legal=problem.legal(system.problem),
            active=problem.active(system.problem) & ~system.done[None],
            reward=reward,
            terminated=system.terminated,
            truncated=ends & ~system.terminated,
            elapsed_s=elapsed_s,
            num_open=jnp.sum(is_open, dtype=jnp.int32),
        )

    return Stepwise(reset, step, num_seats, num_steps)


def _pay(
    problem: Problem, paid: Array, decision_info: PyTree, sources: tuple[Records, ...]
) -> tuple[Array, Array]:
    """Gives out what has settled and was not paid yet; rewards by the seat of the decision."""
    num_seats, total = problem.num_seats, len(paid)
    reward = jnp.zeros(num_seats, jnp.float32)
    for records in sources:
        known = (records.decision >= 0) & (records.decision < total)
        index = jnp.where(known, records.decision, 0)
        due = known & records.settled & ~paid[index]
        of_decisions = jax.tree.map(lambda leaf, index=index: jnp.moveaxis(leaf[index], 0, -1), decision_info)
        worth = jnp.where(due, problem.reward(of_decisions, records.outcome), 0.0)
        seat = jnp.arange(num_seats, dtype=jnp.int32)[:, None] == (index % num_seats)[None]
        reward = reward + jnp.sum(jnp.where(seat, worth[None], 0.0), axis=1)
        paid = paid.at[jnp.where(due, index, total)].set(True, mode="drop")
    return paid, reward

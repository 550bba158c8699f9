"""What waiting costs: a decision is charged with what the costs of all waiting jobs grew until the next one."""

import jax.numpy as jnp

from twin.contracts import Array
from twin.ordering.config import OrderingConfig
from twin.ordering.states import PoolOutcome


def accrued(
    config: OrderingConfig, arrival: Array, run: Array, since: Array, now: Array
) -> tuple[Array, Array]:
    """How much the cost of waiting grew in a span of time.

    Args:
        config: Says which cost.
        arrival: [*batch] ticks.
        run: [*batch] ticks, the true run times.
        since: [*batch] ticks, beginning of the span; before the arrival nothing is charged.
        now: [*batch] ticks, its end.

    Returns:
        The cost by which `now` exceeds `since`, of the configured kind, and the seconds waited.
    """
    before_s = jnp.maximum(since - arrival, 0).astype(jnp.float32) * config.tick_s
    after_s = jnp.maximum(now - arrival, 0).astype(jnp.float32) * config.tick_s
    waited_s = after_s - before_s
    if config.cost == "wait":
        return waited_s / config.time_unit_s, waited_s
    run_s = run.astype(jnp.float32) * config.tick_s
    floor_s = jnp.maximum(run_s, config.slowdown_floor_s)
    before = jnp.maximum((before_s + run_s) / floor_s, 1.0)
    after = jnp.maximum((after_s + run_s) / floor_s, 1.0)
    return (jnp.log(after / before) if config.cost == "log_bounded_slowdown" else after - before), waited_s


def nothing(clock: Array) -> PoolOutcome:
    """No cost yet; leaves [*streams]."""
    zero = jnp.zeros(clock.shape, jnp.float32)
    return PoolOutcome(zero, zero, zero)


def add_start(outcome: PoolOutcome, cost: tuple[Array, Array], which: Array) -> PoolOutcome:
    """Adds what a job [*streams] that starts had accrued, in the streams of `which`."""
    grown, waited_s = (jnp.where(which, part, 0.0) for part in cost)
    return PoolOutcome(
        outcome.cost + grown, outcome.wait_s + waited_s, outcome.num_started + which.astype(jnp.float32)
    )


def add_waiting(outcome: PoolOutcome, cost: tuple[Array, Array], which: Array) -> PoolOutcome:
    """Adds what the jobs that go on waiting [rows, *streams] accrued, where `which` [rows, *streams]."""
    grown, waited_s = (jnp.sum(jnp.where(which, part, 0.0), axis=0) for part in cost)
    return outcome._replace(cost=outcome.cost + grown, wait_s=outcome.wait_s + waited_s)

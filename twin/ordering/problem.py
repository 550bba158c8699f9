"""The ordering problem under the contracts: which waiting job starts next on a pool of processors.

A decision is due whenever a waiting job would fit, unless it waits alone (then it starts). The action is a place among
the first `num_visible` waiting jobs in order of arrival. A job that fits starts, and the queue is looked at again. One
that does not is the *head*: the machine is reserved for it, with `Pool.easy` all jobs behind it are backfilled in the
order `OrderingConfig.backfill`, and the queue is left alone until something happens. Instants, ties and backfilling are
those of `twin.ordering.replay`, to the tick.

The reward of a decision is minus what all jobs' waiting cost until the next decision. So the rewards of an episode that
ends with an empty queue sum to minus the jobs' total cost, up to a constant, whatever the policy: they rank policies as
mean bounded slowdown does (or its logarithm, or the mean wait), and jobs still waiting when an episode is cut short
have been charged for. The cost is computed by the response alone, since only it has the true run times; it goes
straight into the record of the decision and never into the state.
"""

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, Outcome, Problem, PyTree, Records
from twin.ordering.config import COSTS, Order, OrderingConfig
from twin.ordering.costs import nothing
from twin.ordering.features import observe, observe_global
from twin.ordering.machine import PARTS
from twin.ordering.rows import get, numbers
from twin.ordering.starting import has_row
from twin.ordering.states import PoolDecisionInfo, PoolOutcome, PoolState
from twin.ordering.types import Pool

__all__ = ["COSTS", "Order", "OrderingConfig", "ordering"]

LARGEST = 2**30 // PARTS
"""Most processors of a pool whose parts fit into the tables."""


def ordering(pool: Pool, config: OrderingConfig | None = None) -> Problem:
    """The ordering problem on a pool.

    Returns:
        The problem, of one seat; actions are int32 places in the queue [1, *streams]. Legal are all visible jobs: a
        job larger than the pool never joins the queue.

    Raises:
        ConfigError: The pool is too large for the tables.

    Source: DESIGN's problem 2; EASY as in `twin.ordering.replay`.
    """
    config = config or OrderingConfig()
    if pool.processors > LARGEST:
        raise ConfigError(
            f"{pool.processors:,.0f} processors are too many",
            where="Pool.processors",
            allowed=f"at most {LARGEST:,}",
            advice="count in larger units, for example nodes",
        )

    def legal(state: PoolState) -> Array:
        places = numbers(config.num_visible, state.clock)
        return ((places < state.num_waiting[None]) & state.deciding[None])[:, None]

    def decision_info(state: PoolState, action: Array) -> PoolDecisionInfo:
        place, queue = action[0], state.queue
        fits = (get(queue.processors, place) <= state.free) & has_row(state.running)
        wait_s = (state.clock - get(queue.arrival, place)).astype(jnp.float32) * config.tick_s
        seen = PoolDecisionInfo(place, get(queue.agent, place), fits, wait_s)
        return jax.tree.map(lambda leaf: leaf[None], seen)

    return Problem(
        num_seats=1,
        start=lambda outcome: outcome.observed_events.pool,
        observe=lambda state: observe(pool, config, state),
        observe_global=lambda state: observe_global(pool, config, state),
        legal=legal,
        active=lambda state: state.deciding[None],
        apply=_apply,
        remaining=_remaining,
        decision_info=decision_info,
        reward=lambda _facts, outcome: -outcome.cost,
        keeps_done=True,
    )


def _apply(
    _state: PoolState, _action: PyTree, outcome: Outcome, decision: Array
) -> tuple[PoolState, Records]:
    """The pool at the next decision; the record of this one is final and leaves at once."""
    seats: PoolOutcome = jax.tree.map(lambda leaf: leaf[None], outcome.observed_events.outcome)
    return outcome.observed_events.pool, Records(decision, decision >= 0, seats)


def _remaining(state: PoolState) -> Records:
    outcome = jax.tree.map(lambda leaf: leaf[None], nothing(state.clock))
    none = jnp.full((1, *state.clock.shape), -1, jnp.int32)
    return Records(none, none >= 0, outcome)

"""Agents that react to their service: acceptance, pauses and departures depend on the latest requests.

At every request of an agent its impatience is updated by its previous request:

    impatience <- impatience + memory * (late - impatience)

`late` is 1 if that request was completed after its deadline or is overdue, be it that it failed or was dropped; one
that is neither completed nor overdue does not count, also where it has failed. A refused offer adds
`memory * after_refusals * (1 - impatience)`. Impatience starts at 0 every day. An offer is accepted with probability
`preference * (1 - refusing * impatience)`. After each request the agent leaves for good with probability
`leaving * impatience`, or else pauses with probability `pausing * impatience`; a new session begins when it returns.

Arrivals are those of the present agents: candidates arrive as if all were present, and those of absent agents are
skipped (thinning, which is exact). An agent that left for good is replaced by one with the same parameters and zero
impatience, under a new name in the log: within the day, after `newcomer_s` in the mean, and over night at the latest,
so that every day begins in the same state. Where agents send one request at a time, candidates of those with one in the
system are skipped as well, so think times are exponential (`mechanics.follow_unfolding`).

Source: Xiong et al., section 3.1 (agents accept, return or leave).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.arrivals import next_request, uniforms
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.modulation import Path
from evaluation.simulator.names import Names
from evaluation.simulator.options import Reactions
from evaluation.simulator.world import World
from twin.contracts import Array, Streams
from twin.placement.types import Requests


class AgentStates(NamedTuple):
    """What agents remember; leaves [agents, *streams], times on the episode's clock."""

    impatience: Array  # in [0, 1]
    due_s: Array  # when the latest accepted request is due; inf: none, or already judged
    end_s: Array  # when it was completed; inf: not yet, or never
    # until then the agent or its replacement is absent; inf: has left, without replacement today
    back_s: Array
    session: Array  # int32: sessions of the day before this one


def fresh_agents(num_agents: int, streams: Streams) -> AgentStates:
    """All agents present, with zero impatience."""
    zero = jnp.zeros((num_agents, *streams), jnp.float32)
    never = jnp.full_like(zero, jnp.inf)
    return AgentStates(zero, never, never, zero, jnp.zeros(zero.shape, jnp.int32))


def of_agent(leaf: Array, agent: Array) -> Array:
    """[*streams] the leaf's [agents, *streams] values of each stream's agent."""
    return jnp.take_along_axis(leaf, agent[None], axis=0)[0]


def _with(leaf: Array, agent: Array, value: Array) -> Array:
    index = jnp.arange(leaf.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * agent.ndim)
    return jnp.where(index == agent[None], value[None], leaf)


def next_present(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    offset_s: Array,
    clock_s: Array,
    weekday: int | Array,
    crowd: AgentStates,
    rate: Path | None = None,
) -> tuple[Array, Requests, Array]:
    """As `arrivals.next_request`, of agents that are present."""

    def draw(key: Array, clock_s: Array) -> tuple[Array, Requests, Array]:
        return next_request(key, world, today, names, offset_s, clock_s, weekday, rate)

    first = draw(key, clock_s)
    if not world.reactions.any:
        return first

    def absent(candidate: tuple[Array, Requests, Array]) -> Array:
        arrival_s, request, more = candidate
        return more & (of_agent(crowd.back_s, request.agent) > arrival_s)

    def again(
        carry: tuple[Array, tuple[Array, Requests, Array]],
    ) -> tuple[Array, tuple[Array, Requests, Array]]:
        number, candidate = carry
        void = absent(candidate)
        other = draw(jax.random.fold_in(key, number), candidate[0])
        kept = jax.tree.map(lambda new, old: jnp.where(void, new, old), other, candidate)
        return number + 1, kept

    _, found = jax.lax.while_loop(lambda carry: jnp.any(absent(carry[1])), again, (jnp.int32(1), first))
    return found


def willingness(reactions: Reactions, crowd: AgentStates, agent: Array) -> Array:
    """[*streams] factor in [0, 1] of the agent's probability to accept."""
    return 1.0 - reactions.refusing * of_agent(crowd.impatience, agent)


def judge(reactions: Reactions, crowd: AgentStates, agent: Array, clock_s: Array) -> AgentStates:
    """Updates the impatience of the requesting agents at `clock_s` [*streams] by their latest requests."""
    due_s, end_s, impatience = (
        of_agent(leaf, agent) for leaf in (crowd.due_s, crowd.end_s, crowd.impatience)
    )
    judged = jnp.minimum(due_s, end_s) <= clock_s
    late = jnp.where(end_s <= due_s, 0.0, 1.0)
    impatience = jnp.where(judged, impatience + reactions.memory * (late - impatience), impatience)
    return crowd._replace(
        impatience=_with(crowd.impatience, agent, impatience),
        due_s=_with(crowd.due_s, agent, jnp.where(judged, jnp.inf, due_s)),
        end_s=_with(crowd.end_s, agent, jnp.where(judged, jnp.inf, end_s)),
    )


def react(
    key: Array,
    reactions: Reactions,
    crowd: AgentStates,
    request: Requests,
    clock_s: Array,
    accepted: Array,
    has_request: Array,
) -> tuple[AgentStates, Array]:
    """The agents' states after their requests: the pending request is recorded, and agents may leave or pause.

    Args:
        key: PRNG key.
        reactions: Parameters of the reactions.
        crowd: The states before.
        request: Leaves [*streams].
        clock_s: [*streams] now.
        accepted: [*streams] bool: the offer was accepted.
        has_request: [*streams] bool: there was a request.

    Returns:
        The states, and whether the agent leaves for good [*streams] bool.
    """
    agent = request.agent
    numbers = uniforms(key, 3, clock_s.shape)
    impatience, session = of_agent(crowd.impatience, agent), of_agent(crowd.session, agent)
    if reactions.after_refusals > 0.0:
        hurt = reactions.memory * reactions.after_refusals * (1.0 - impatience)
        impatience = impatience + jnp.where(has_request & ~accepted, hurt, 0.0)
    leaves = has_request & (numbers[0] < reactions.leaving * impatience)
    pauses = has_request & ~leaves & (numbers[1] < reactions.pausing * impatience)
    absence_s = -jnp.log1p(-numbers[2]) * reactions.absence_s
    back_s = of_agent(crowd.back_s, agent)
    newcomer_s = jnp.full_like(clock_s, jnp.inf)
    if reactions.newcomer_s < float("inf"):
        newcomer_s = clock_s - jnp.log1p(-numbers[2]) * reactions.newcomer_s
        impatience = jnp.where(leaves, 0.0, impatience)
    back_s = jnp.where(leaves, newcomer_s, jnp.where(pauses, clock_s + absence_s, back_s))
    due_s = jnp.where(accepted, clock_s + request.deadline_s, of_agent(crowd.due_s, agent))
    end_s = jnp.where(accepted, jnp.inf, of_agent(crowd.end_s, agent))
    if reactions.newcomer_s < float("inf"):
        due_s = jnp.where(leaves, jnp.inf, due_s)  # its replacement does not wait for it
    crowd = crowd._replace(
        impatience=_with(crowd.impatience, agent, impatience),
        due_s=_with(crowd.due_s, agent, due_s),
        end_s=_with(crowd.end_s, agent, end_s),
        back_s=_with(crowd.back_s, agent, back_s),
        session=_with(crowd.session, agent, session + pauses.astype(jnp.int32)),
    )
    return crowd, leaves

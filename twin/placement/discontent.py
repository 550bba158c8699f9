"""How ill an agent was served lately, where its answers depend on it.

    discontent <- discontent + FADING * (ill - discontent)      at every request of an agent, by the one before

`ill` is 1 where that was refused, has failed or is overdue, 0 where it ended in time; one of which neither is known yet
does not count. Discontent begins at 0 every day. An agent that is served well accepts more than in a log of a scheduler
that serves it ill: no usual acceptance can tell that. So answers see discontent, in the log and as the twin draws it;
policies do not. Where the training days show no such dependence there is none.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Streams
from twin.placement.features import one_hot
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, UNKNOWN, Fate, Leaf, Reaction, Requests

FADING = 0.3
"""Weight of an agent's last request."""
LEAST_EFFECT = 0.05
"""Correlation of what is left of acceptance with discontent, below which agents are taken not to answer by it."""
MIN_REQUESTS = 20
"""Of an agent on a day, for its answers to be looked at."""
_CERTAIN = 4.0
"""Standard errors by which the correlation must differ from 0."""
_MOST_AGENTS = 16_384


class AgentsServed(NamedTuple):
    """What a twin keeps of every agent; leaves [slots, *streams]."""

    discontent: Array  # at its last request; negative: none yet
    known_s: Array  # when it is known how that went
    ill: Array  # bool: how it goes


def discontent_along(
    agent: np.ndarray,
    day: np.ndarray,
    arrival_s: np.ndarray,
    finish_s: np.ndarray,
    status: np.ndarray,
    deadline_s: np.ndarray,
) -> np.ndarray:
    """The discontent of every request's agent when it arrives, by the log.

    Args:
        agent: [rows] index, -1 where the log hides it.
        day: [rows] days; agents begin each anew.
        arrival_s: [rows] in order.
        finish_s: [rows] inf where not known.
        status: [rows] of `types`.
        deadline_s: [rows] from arrival; inf without a deadline.

    Returns:
        [rows] in [0, 1], float32.
    """
    ill, known_s = _gone_ill(arrival_s, finish_s, status, arrival_s + deadline_s)
    found = np.zeros(len(agent), np.float32)
    last: dict[tuple[int, int], int] = {}
    for row, one in enumerate(zip(agent.tolist(), day.tolist(), strict=True)):
        before = last.get(one)
        if before is not None:
            found[row] = found[before]
            if known_s[before] <= arrival_s[row]:
                found[row] += FADING * (ill[before] - found[before])
        if one[0] >= 0:
            last[one] = row
    return found


def _gone_ill(
    arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray, due_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] bool: refused, failed, given up or late; and when that is known, inf where it never is."""
    refused = status == REJECTED
    ill = refused | np.isin(status, (FAILED, DROPPED)) | (finish_s > due_s)
    known_s = np.where(refused, arrival_s, np.minimum(finish_s, due_s))
    return ill, np.where((status == UNKNOWN) & ~np.isfinite(due_s), np.inf, known_s)


def fit_reaction(
    accepted: np.ndarray, usual: np.ndarray, discontent: np.ndarray, agent: np.ndarray, day: np.ndarray
) -> Reaction | None:
    """How agents answer by how they were served, by least squares on what is left of each agent's day.

    Args:
        accepted: [rows] 1 or 0; NaN where the log does not show it.
        usual: [rows] the agent's usual acceptance.
        discontent: [rows] of `discontent_along`.
        agent, day: [rows] as there.

    Returns:
        The reaction, with a power of two of slots, at least twice the agents of the busiest day (of more than 8,192
        agents some share a slot); None where the log shows none.
    """
    known = np.isfinite(accepted) & (agent >= 0)
    if not known.any():
        return None
    pair = np.stack([day[known], agent[known]])
    group, size = np.unique(pair, axis=1, return_inverse=True, return_counts=True)[1:]
    group = group.ravel()
    often = size[group] >= MIN_REQUESTS
    left, cause = (
        (column - (np.bincount(group, column) / size)[group])[often]
        for column in ((accepted - usual)[known], discontent[known])
    )
    scale = np.sqrt(np.sum(left**2) * np.sum(cause**2))
    if not scale > 0.0 or abs(left @ cause) / scale < max(LEAST_EFFECT, _CERTAIN / np.sqrt(often.sum())):
        return None
    most = max(len(np.unique(agent[known & (day == one)])) for one in np.unique(day))
    num_slots = min(2 ** int(np.ceil(np.log2(2 * most))), _MOST_AGENTS)
    return Reaction(num_slots, float(left @ cause / (cause @ cause)), float(discontent[known].mean()))


def nobody_served(num_slots: int, streams: Streams) -> AgentsServed:
    """Before anyone asked."""
    shape = (num_slots, *streams)
    return AgentsServed(
        jnp.full(shape, -1.0, jnp.float32), jnp.full(shape, jnp.inf, jnp.float32), jnp.zeros(shape, bool)
    )


def discontent_of(served: AgentsServed, request: Requests, clock_s: Array) -> Array:
    """[seats, *streams] discontent of the agents who ask now: by what they were answered in this episode; at their
    first request of it by the log that is replayed."""
    before, known_s, ill = (_of_agents(leaf, request.agent) for leaf in served)
    after = before + FADING * (ill.astype(jnp.float32) - before)
    moved = jnp.where(known_s <= clock_s[None], after, before)
    return jnp.where(_is_new(before, request.agent), _logged(request), moved)


def after_answers(
    served: AgentsServed, request: Requests, discontent: Array, clock_s: Array, fate: Fate, active: Array
) -> AgentsServed:
    """The account with the answers `fate` to the requests in hand, leaves [seats, *streams]."""
    refused = ~fate.accepted
    due_s = clock_s[None] + request.deadline_s
    ill = refused | (fate.status != COMPLETED) | (fate.finish_s > due_s)
    known_s = jnp.where(refused, clock_s[None], jnp.minimum(fate.finish_s, due_s))
    for seat in range(request.agent.shape[0]):
        agent = request.agent[seat]
        num_slots = served.ill.shape[0]
        mine = one_hot(agent % num_slots, num_slots) & (active[seat] & (agent >= 0))[None]
        served = AgentsServed(
            *(
                jnp.where(mine, new[seat][None], old)
                for new, old in zip((discontent, known_s, ill), served, strict=True)
            )
        )
    return served


def _of_agents(leaf: Array, agent: Array) -> Array:
    """[seats, *streams] of leaves [slots, *streams]."""
    return jnp.take_along_axis(leaf, jnp.maximum(agent, 0) % leaf.shape[0], axis=0)


def _is_new(discontent: Array, agent: Array) -> Array:
    return (discontent < 0.0) | (agent < 0)


def _logged(request: Requests) -> Leaf:
    return jnp.zeros(request.agent.shape, jnp.float32) if request.discontent is None else request.discontent

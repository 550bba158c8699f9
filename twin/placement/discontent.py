"""How ill an agent was served lately, where its answers depend on it.

    discontent <- discontent + FADING * (ill - discontent)      at every request of an agent, by the one before

`ill` is 1 where that was refused, has failed or is overdue, 0 where it ended in time; one of which neither is known yet
does not count. Discontent begins at 0 every day. An agent that is served well accepts more than in a log of a scheduler
that serves it ill: no usual acceptance can tell that. So answers see discontent, in the log and as the twin draws it;
policies do not. Where the training days do not show that agents accept less with it there is none.

Many agents ask only once in an episode, with the discontent that the log's scheduler gave them. One that serves its
agents better would find them more content: so it counts as many times as much as more requests went ill in the episode
than in the log, of the same requests.

What is left of an agent's answers is taken less the mean of its *later* answers of that day (forward deviations; M.
Arellano and O. Bover, Another look at the instrumental variable estimation of error-components models, 1995): less the
mean of all, answers that depend on nothing would rise with the refusals before them, by one in so many.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Streams
from twin.placement.service_times import rows_by_group
from twin.placement.types import DROPPED, FAILED, REJECTED, UNKNOWN, Fate, Leaf, Reaction, Requests

FADING = 0.3
"""Weight of an agent's last request."""
ILL_BEFORE = 5.0
"""Requests gone ill, in an episode as in the log, that both counts begin with."""
LEAST_EFFECT = 0.05
"""Correlation of what is left of acceptance with discontent, below which agents are taken not to answer by it."""
LEAST_LATER = 5
"""Later answers of an agent on a day, that one is held against."""
_CERTAIN = 4.0
"""Standard errors by which the correlation must differ from 0."""
_MOST_AGENTS = 16_384


class AgentsServed(NamedTuple):
    """What a twin keeps of every agent, leaves [slots, streams], and of all of them, leaves [streams]."""

    discontent: Array  # at its last request; negative: none yet
    known_s: Array  # when it is known how that went
    ill: Array  # bool: how it goes
    day_fraction: Array  # when that was: a request earlier in the day is of another day
    num_ill: Array  # requests of the episode that went ill, of those of which the log shows how they went
    num_ill_in_log: Array  # the same requests in the log


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
    ill, known_s = gone_ill(arrival_s, finish_s, status, arrival_s + deadline_s)
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


def ill_in_log(
    arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray, deadline_s: np.ndarray
) -> np.ndarray:
    """[rows] 1 or 0, arguments as of `discontent_along`: whether the requests went ill; NaN where the log does not
    show it."""
    ill, known_s = gone_ill(arrival_s, finish_s, status, arrival_s + deadline_s)
    return np.where(np.isfinite(known_s), ill, np.nan).astype(np.float32)


def gone_ill(arrival_s: Any, finish_s: Any, status: Any, due_s: Any, np: Any = np) -> tuple[Any, Any]:
    """Whether requests were refused, failed, given up or late, and when that is known, inf where it never is; of the
    arguments' shape, on one clock."""
    refused = status == REJECTED
    ill = refused | (status == FAILED) | (status == DROPPED) | (finish_s > due_s)
    known_s = np.where(refused, arrival_s, np.minimum(finish_s, due_s))
    return ill, np.where((status == UNKNOWN) & ~np.isfinite(due_s), np.inf, known_s)


def forward_deviations(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[rows] values less the mean of the later values of their group, scaled to a variance that does not depend on how
    many these are; NaN where they are fewer than `LEAST_LATER`. Rows in the order of time."""
    found = np.full(len(values), np.nan)
    for here in rows_by_group(group):
        later = np.arange(len(here))[::-1]
        rest = values[here].sum() - np.cumsum(values[here])
        with np.errstate(invalid="ignore", divide="ignore"):
            away = (values[here] - rest / later) * np.sqrt(later / (later + 1.0))
        found[here] = np.where(later >= LEAST_LATER, away, np.nan)
    return found


def fit_reaction(
    accepted: np.ndarray, usual: np.ndarray, discontent: np.ndarray, agent: np.ndarray, day: np.ndarray
) -> Reaction | None:
    """How agents answer by how they were served.

    Args:
        accepted: [rows] 1 or 0, in the order of time; NaN where the log does not show it.
        usual: [rows] the agent's usual acceptance.
        discontent: [rows] of `discontent_along`.
        agent, day: [rows] as there.

    Returns:
        The reaction, with a power of two of slots, at least twice the agents (of more than 8,192 some share a slot);
        None where the log does not show that discontent makes agents accept less.
    """
    known = np.isfinite(accepted) & (agent >= 0)
    if not known.any():
        return None
    group = np.unique(np.stack([day[known], agent[known]]), axis=1, return_inverse=True)[1].ravel()
    left, moved = (forward_deviations(one[known], group) for one in (accepted - usual, discontent))
    cause = discontent[known] - discontent[known].mean()
    seen = np.isfinite(left)
    left, moved, cause = left[seen], moved[seen], cause[seen]
    scale, both = np.sqrt(np.sum(left**2) * np.sum(cause**2)), np.sum(left * cause)
    if not scale > 0.0 or both / scale > -max(LEAST_EFFECT, _CERTAIN / np.sqrt(len(left))):
        return None
    num_slots = min(2 ** int(np.ceil(np.log2(2 * len(np.unique(agent[known]))))), _MOST_AGENTS)
    # Sums, not products of vectors, whose last digits depend on the processors
    effect = both / np.sum(moved * cause)
    return Reaction(num_slots, float(np.clip(effect, -1.0, 0.0)), float(discontent[known].mean()))


def nobody_served(num_slots: int, streams: Streams) -> AgentsServed:
    """Before anyone asked; one stream axis."""
    shape = (num_slots, *streams)
    return AgentsServed(
        jnp.full(shape, -1.0, jnp.float32),
        jnp.full(shape, jnp.inf, jnp.float32),
        jnp.zeros(shape, bool),
        *(jnp.zeros(one, jnp.float32) for one in (shape, streams, streams)),
    )


def discontent_of(served: AgentsServed, request: Requests, clock_s: Array) -> Array:
    """[seats, streams] discontent of the agents who ask now: by what they were answered in this episode; at their first
    request of it, and of a day, by the log that is replayed, as far as this episode goes as ill."""
    before, known_s, ill, day_fraction = (_of_agents(leaf, request.agent) for leaf in served[:4])
    as_ill = (ILL_BEFORE + served.num_ill) / (ILL_BEFORE + served.num_ill_in_log)
    after = before + FADING * (ill.astype(jnp.float32) - before)
    moved = jnp.where(known_s <= clock_s[None], after, before)
    is_new = (before < 0.0) | (request.agent < 0) | (request.day_fraction < day_fraction)
    return jnp.where(is_new, jnp.minimum(as_ill[None] * _logged(request), 1.0), moved)


def after_answers(
    served: AgentsServed, request: Requests, discontent: Array, clock_s: Array, fate: Fate, active: Array
) -> AgentsServed:
    """The account with the answers `fate` to the requests in hand, leaves [seats, streams]."""
    now_s = clock_s[None]
    ill, known_s = gone_ill(now_s, fate.finish_s, fate.status, now_s + request.deadline_s, jnp)
    num_slots, num_streams = served.ill.shape
    new = {"discontent": discontent, "known_s": known_s, "ill": ill, "day_fraction": request.day_fraction}
    streams = jnp.arange(num_streams)
    for seat in range(request.agent.shape[0]):
        agent = request.agent[seat]
        slot = jnp.where(active[seat] & (agent >= 0), agent % num_slots, num_slots)  # nobody: beyond the last
        moved = {
            name: getattr(served, name).at[slot, streams].set(one[seat], mode="drop")
            for name, one in new.items()
        }
        served = served._replace(**moved)
    if request.ill_in_log is None:
        return served
    counted = active & (request.agent >= 0) & jnp.isfinite(request.ill_in_log)
    here, logged = (jnp.sum(jnp.where(counted, one, 0.0), axis=0) for one in (ill, request.ill_in_log))
    return served._replace(num_ill=served.num_ill + here, num_ill_in_log=served.num_ill_in_log + logged)


def _of_agents(leaf: Array, agent: Array) -> Array:
    """[seats, *streams] of leaves [slots, *streams]."""
    return jnp.take_along_axis(leaf, jnp.maximum(agent, 0) % leaf.shape[0], axis=0)


def _logged(request: Requests) -> Leaf:
    return jnp.zeros(request.agent.shape, jnp.float32) if request.discontent is None else request.discontent

"""History as rollouts: the log followed through the bookkeeping, and every offer in it as a labelled row.

The features of a row are those the rollout computed, so they mean in training exactly what they mean in the twin.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage, unseen
from twin.contracts import Array, Environment, Trajectory
from twin.environment import environment
from twin.placement.availability import pending_fates
from twin.placement.awaited_arrivals import arrivals_of
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.learned import AVAILABILITY, answer_inputs, num_inputs
from twin.placement.outcome_model import Observed
from twin.placement.patience import is_given_up
from twin.placement.repeated_arrivals import repeated_arrivals
from twin.placement.replay import ReplayTable, replay_table, replayed_answers
from twin.placement.responses import Answers, drawn_response
from twin.placement.timeouts import is_cut_off
from twin.placement.types import DROPPED, FAILED, REJECTED, Cluster
from twin.placement.windows import Windows, pad_windows, replayed_arrivals, select, side_by_side
from twin.rollout import follow

AT_ONCE = 64
"""Windows that are followed at once: what a rollout records of a window is far more than what is kept of its offers."""
FEW = 16
"""So many or fewer are padded to so many, all others to `AT_ONCE`: two shapes, two programs."""
MOST_NODES = 128
"""With more nodes only `FEW` windows are followed at once: what is recorded grows with them."""
MOST_VIEWS = 1 << 20
"""Then steps times nodes of the windows that are followed at once: of long windows fewer than `FEW`."""
_COMPILING = Lock()
"""A job follows its log in two threads at once; the second finds the program compiled."""


def fewer_of(count: int, num_nodes: int) -> int:
    """So many of what takes time and memory by nodes; of more than `MOST_NODES` nodes fewer, in proportion."""
    return count * MOST_NODES // max(MOST_NODES, num_nodes)


def replay_environment(windows: Windows, encoding: Encoding, table: ReplayTable | None = None) -> Environment:
    """The environment that replays `windows`: history where decisions agree, the donor rule where they do not."""
    if table is None:
        table = answers_of_history(windows, encoding)
    answers = replayed_answers(windows, table)._replace(response_aux=partial(pending_fates, encoding.cluster))
    return answered_environment(windows, encoding, answers)


def answered_environment(
    windows: Windows, encoding: Encoding, answers: Answers, *, reacts: bool = False
) -> Environment:
    """The environment whose requests are those of `windows`, answered by `answers`; with `reacts` failed requests come
    again by what fails there, and agents await their answers, where the log shows that they do."""
    cluster, problem = encoding.cluster, encoding.problem
    arrivals = replayed_arrivals(windows)
    if reacts and cluster.repeats:
        arrivals = repeated_arrivals(windows, cluster.repeats)
    elif reacts:
        arrivals = arrivals_of(windows)
    response = drawn_response(cluster, problem.depth, arrivals, answers)
    return environment(placement(cluster, problem), response)


def answers_of_history(windows: Windows, encoding: Encoding, donors: Windows | None = None) -> ReplayTable:
    """The replay table of some windows, among `donors` where they are given; batch jobs keep their own run times."""
    return replay_table(windows, encoding.cluster.num_nodes, own_run=encoding.states_run, donors=donors)


class Followed(NamedTuple):
    """Logged windows followed through the bookkeeping."""

    history: Trajectory  # leaves [..., W]
    offers: Array  # [inputs, T, W] what the network of the answers is shown of every offer


def replay_log(windows: Windows, encoding: Encoding, stage: Stage = unseen) -> Trajectory:
    """History as a trajectory: the logged decisions followed through the bookkeeping, one stream a window; `stage` as
    of `followed_parts`."""
    return _of_all(windows, encoding, lambda history: history, stage)


def choices_in_log(windows: Windows, encoding: Encoding) -> Trajectory:
    """`replay_log` without what a critic observes: all that a clone learns from, in half the memory."""
    return _of_all(windows, encoding, lambda history: history._replace(global_observation=None))


def _of_all(
    windows: Windows, encoding: Encoding, kept: Callable[[Trajectory], Trajectory], stage: Stage = unseen
) -> Trajectory:
    """What is kept of the history of all windows."""
    parts = (kept(followed.history) for _, followed in followed_parts(windows, encoding, stage))
    whole: Trajectory = side_by_side(parts, windows.num_windows)
    return whole


def shapes_of_replay(windows: Windows, encoding: Encoding) -> Trajectory:
    """Shapes and dtypes of `replay_log`, but for the last axis, without a replay."""
    first = pad_windows(select(windows, np.arange(1)), windows.num_steps, FEW)
    table = answers_of_history(first, encoding)
    return jax.eval_shape(_replay_program(encoding.to_json()), first, table).history


def followed_parts(
    windows: Windows, encoding: Encoding, stage: Stage = unseen
) -> Iterator[tuple[np.ndarray, Followed]]:
    """The log followed some windows at a time: their indices, and what was recorded as NumPy arrays. `stage` is told
    how many windows are followed."""
    width = _width(windows, encoding.cluster.num_nodes)
    for first in range(0, windows.num_windows, width):
        part = np.arange(first, min(first + width, windows.num_windows))
        padded = pad_windows(select(windows, part), windows.num_steps, width)
        table = answers_of_history(padded, encoding, windows)
        with _COMPILING:
            found = _replay_program(encoding.to_json())(padded, table)
        yield part, jax.tree.map(lambda leaf, part=part: np.asarray(leaf)[..., : len(part)], found)
        stage(float(part[-1] + 1), float(windows.num_windows))


def _width(windows: Windows, num_nodes: int) -> int:
    """How many windows are followed at once."""
    if num_nodes > MOST_NODES:
        return max(1, min(FEW, MOST_VIEWS // (windows.num_steps * num_nodes)))
    return AT_ONCE if windows.num_windows > FEW else FEW


@lru_cache(maxsize=8)
def _replay_program(text: str) -> Callable[[Windows, ReplayTable], Followed]:
    """The replay under an encoding's text, compiled once for each shape: a job follows its log for the fit, for clones,
    for rules and for its report."""
    encoding = Encoding.from_json(text)

    def run(windows: Windows, table: ReplayTable) -> Followed:
        actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
        system = replay_environment(windows, encoding, table)
        history = follow(jax.random.key(0), system, actions, (windows.arrival_s.shape[1],))
        steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:-1], 0, -1), history.global_observation)
        node = jnp.moveaxis(history.decision_info.node, 0, -1)
        pending = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), history.response_aux)
        inputs = answer_inputs(encoding.cluster, steps, node, pending, encoding.problem.time_unit_s)
        return Followed(history, jnp.moveaxis(inputs[:, 0], -1, 1))

    return jax.jit(run)


class Offers(NamedTuple):
    """Labelled offers: inputs [inputs, rows] and what was observed [rows]."""

    inputs: np.ndarray
    observed: Observed
    window: np.ndarray  # [rows] which window a row is from
    driven_out: np.ndarray | None = None  # [rows] of `Windows.driven_out`
    work_s: np.ndarray | None = None  # [rows] of `Windows.work_s`


def labelled_offers(windows: Windows, encoding: Encoding, stage: Stage = unseen) -> Offers:
    """The offers of some windows with their answers; `stage` as of `followed_parts`.

    Returns:
        One row an offer, step by step and window by window; durations of unfinished requests are lower bounds, known up
        to the window's last instant.
    """
    rows = windows.valid() & (windows.node >= 0)
    column = np.cumsum(rows).reshape(rows.shape) - 1
    inputs = np.empty((num_inputs(encoding.cluster), rows.sum()), np.float32)
    legal = np.ones(rows.shape, bool)
    for part, followed in followed_parts(windows, encoding, stage):
        here = rows[:, part]
        inputs[:, column[:, part][here]] = followed.offers[:, here]
        legal[:, part] = ~followed.history.illegal[:, 0]
    kept = legal[rows]
    rows &= legal
    window = np.broadcast_to(np.arange(windows.num_windows), rows.shape)
    observed = Observed(*(np.asarray(leaf)[rows] for leaf in observed_answers(windows, encoding.cluster)))
    driven_out = None if windows.driven_out is None else windows.driven_out[rows]
    work_s = None if windows.work_s is None else windows.work_s[rows]
    return Offers(inputs if kept.all() else inputs[:, kept], observed, window[rows], driven_out, work_s)


def as_drawn(offers: Offers, time_unit_s: float) -> Offers:
    """The offers with what answers draw: waits until requests began first, of those that may have been driven out since
    (`driving_out`), taken to be until there was room; and works in place of run times where runs slow each other."""
    seen = offers.observed
    if offers.work_s is not None:
        seen = seen._replace(run_s=offers.work_s)
    if offers.driven_out is not None:
        room_s = np.expm1(offers.inputs[AVAILABILITY]) * time_unit_s
        first_s = np.where(offers.driven_out & seen.started, np.minimum(seen.wait_s, room_s), seen.wait_s)
        seen = seen._replace(wait_s=first_s)
    return offers._replace(observed=seen)


def observed_answers(windows: Windows, cluster: Cluster) -> Observed:
    """The logged part of every answer, leaves [T, W]; a run that was cut off would have been at least so long, and so
    would the wait of what was given up."""
    fate, arrival_s, valid = windows.fate, windows.arrival_s, windows.valid()
    last_s = np.max(np.where(valid, arrival_s, -np.inf), axis=0)[None]
    started, finished = np.isfinite(fate.start_s), np.isfinite(fate.finish_s)
    service = np.asarray(windows.request.service)
    with np.errstate(invalid="ignore"):
        waited_s = fate.finish_s - arrival_s
        given_up = is_given_up(cluster, service, windows.request.deadline_s, waited_s, fate.status)
        unseen_s = np.where(given_up, waited_s, last_s - arrival_s)
        wait_s = np.where(started, fate.start_s - arrival_s, unseen_s)
        run_s = np.where(finished, fate.finish_s - fate.start_s, np.maximum(last_s - fate.start_s, 0.0))
        cut_off = np.zeros(run_s.shape, bool)
        if windows.request.run_limit_s is not None:
            cut_off = is_cut_off(windows.request.run_limit_s, run_s, fate.status == FAILED)
    return Observed(
        accepted=fate.status != REJECTED,
        dropped=(fate.status == DROPPED) & ~given_up,
        failed=(fate.status == FAILED) & ~cut_off,
        wait_s=np.maximum(wait_s, 0.0),
        started=started,
        run_s=np.where(started, np.maximum(run_s, 0.0), 0.0),
        finished=finished & started & ~cut_off,
    )

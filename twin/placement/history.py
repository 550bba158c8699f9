"""History as rollouts: the log followed through the bookkeeping, and every offer in it as a labelled row.

The features of a row are those the rollout computed, so they mean in training exactly what they mean in the twin.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Environment, Trajectory
from twin.environment import environment
from twin.placement.availability import pending_fates
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.learned import answer_inputs, num_inputs
from twin.placement.outcome_model import Observed
from twin.placement.replay import ReplayTable, replay_table, replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.types import DROPPED, FAILED, REJECTED
from twin.placement.windows import Windows, pad_windows, replayed_arrivals, select
from twin.rollout import follow

AT_ONCE = 64
"""Windows whose offers are made at once: what a rollout records of a window is far more than what is kept of it."""
FEW = 16
"""So many or fewer are padded to so many, all others to `AT_ONCE`: two shapes, two programs."""


def replay_environment(windows: Windows, encoding: Encoding, table: ReplayTable | None = None) -> Environment:
    """The environment that replays `windows`: history where decisions agree, the donor rule where they do not."""
    if table is None:
        table = answers_of_history(windows, encoding)
    answers = replayed_answers(windows, table)._replace(response_aux=partial(pending_fates, encoding.cluster))
    response = drawn_response(encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), answers)
    return environment(placement(encoding.cluster, encoding.problem), response)


def answers_of_history(windows: Windows, encoding: Encoding, donors: Windows | None = None) -> ReplayTable:
    """The replay table of some windows, among `donors` where they are given; batch jobs keep their own run times."""
    return replay_table(windows, encoding.cluster.num_nodes, own_run=encoding.states_run, donors=donors)


def _follow_log(encoding: Encoding, windows: Windows, table: ReplayTable) -> Trajectory:
    system = replay_environment(windows, encoding, table)
    actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
    return follow(jax.random.key(0), system, actions, (windows.arrival_s.shape[1],))


def replay_log(windows: Windows, encoding: Encoding) -> Trajectory:
    """History as a trajectory: the logged decisions followed through the bookkeeping, one stream a window."""
    return _log_program(encoding.to_json())(windows, answers_of_history(windows, encoding))


@lru_cache(maxsize=8)
def _log_program(encoding: str) -> Callable[[Windows, ReplayTable], Trajectory]:
    """`_follow_log` under an encoding's text, compiled once for each shape: a job replays its log several times."""
    return jax.jit(partial(_follow_log, Encoding.from_json(encoding)))


class Offers(NamedTuple):
    """Labelled offers: inputs [inputs, rows] and what was observed [rows]."""

    inputs: np.ndarray
    observed: Observed
    window: np.ndarray  # [rows] which window a row is from


def offer_program(encoding: Encoding) -> Callable[[Windows, ReplayTable], tuple[Array, Array]]:
    """Compiled once for each shape: windows, table -> inputs [inputs, T, W] of every offer, illegal [T, W]."""
    return _offer_program(encoding.to_json())


@lru_cache(maxsize=8)
def _offer_program(text: str) -> Callable[[Windows, ReplayTable], tuple[Array, Array]]:
    """`offer_program` of an encoding's text: a job labels its log for the fit, for rules and for its report."""
    encoding = Encoding.from_json(text)

    def run(windows: Windows, table: ReplayTable) -> tuple[Array, Array]:
        history = _follow_log(encoding, windows, table)
        steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:-1], 0, -1), history.global_observation)
        node = jnp.moveaxis(history.decision_info.node, 0, -1)
        pending = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), history.response_aux)
        inputs = answer_inputs(encoding.cluster, steps, node, pending, encoding.problem.time_unit_s)
        return jnp.moveaxis(inputs[:, 0], -1, 1), history.illegal[:, 0]

    return jax.jit(run)


def labelled_offers(
    windows: Windows,
    encoding: Encoding,
    program: Callable[[Windows, ReplayTable], tuple[Array, Array]] | None = None,
) -> Offers:
    """The offers of some windows with their answers.

    Args:
        windows: Logged windows.
        encoding: What they mean.
        program: Another one than `offer_program`'s.

    Returns:
        One row an offer, step by step and window by window; durations of unfinished requests are lower bounds, known up
        to the window's last instant.
    """
    run = offer_program(encoding) if program is None else program
    rows = windows.valid() & (windows.node >= 0)
    column = np.cumsum(rows).reshape(rows.shape) - 1
    inputs = np.empty((num_inputs(encoding.cluster), rows.sum()), np.float32)
    legal = np.ones(rows.shape, bool)
    for first in range(0, windows.num_windows, AT_ONCE):
        part = np.arange(first, min(first + AT_ONCE, windows.num_windows))
        part_inputs, illegal = _offers_of(windows, part, encoding, run)
        here = rows[:, part]
        inputs[:, column[:, part][here]] = part_inputs[:, here]
        legal[:, part] = ~illegal
    kept = legal[rows]
    rows &= legal
    window = np.broadcast_to(np.arange(windows.num_windows), rows.shape)
    observed = Observed(*(np.asarray(leaf)[rows] for leaf in observed_answers(windows)))
    return Offers(inputs if kept.all() else inputs[:, kept], observed, window[rows])


def _offers_of(
    windows: Windows,
    part: np.ndarray,
    encoding: Encoding,
    run: Callable[[Windows, ReplayTable], tuple[Array, Array]],
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [inputs, T, part] of the offers of some windows (indices), and which are illegal [T, part]."""
    width = AT_ONCE if windows.num_windows > FEW else FEW
    padded = pad_windows(select(windows, part), windows.num_steps, width)
    table = answers_of_history(padded, encoding, windows)
    inputs, illegal = run(padded, table)
    return np.asarray(inputs)[..., : len(part)], np.asarray(illegal)[..., : len(part)]


def observed_answers(windows: Windows) -> Observed:
    """The logged part of every answer, leaves [T, W]."""
    fate, arrival_s, valid = windows.fate, windows.arrival_s, windows.valid()
    last_s = np.max(np.where(valid, arrival_s, -np.inf), axis=0)[None]
    started, finished = np.isfinite(fate.start_s), np.isfinite(fate.finish_s)
    with np.errstate(invalid="ignore"):
        wait_s = np.where(started, fate.start_s - arrival_s, np.maximum(last_s - arrival_s, 0.0))
        run_s = np.where(finished, fate.finish_s - fate.start_s, np.maximum(last_s - fate.start_s, 0.0))
    return Observed(
        accepted=fate.status != REJECTED,
        dropped=fate.status == DROPPED,
        failed=fate.status == FAILED,
        wait_s=np.maximum(wait_s, 0.0),
        started=started,
        run_s=np.where(started, np.maximum(run_s, 0.0), 0.0),
        finished=finished & started,
    )

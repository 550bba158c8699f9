"""Held-out days, as logged and as simulated by the system under test with the logged arrivals.

Decisions are those of a clone of the logged behaviour, which reacts to simulated events (closed loop), or the logged
ones, then with the logged run times and acceptances: logged decisions were reactions to logged run times, and with new
draws of run times they would overload the very system that wrote the log.

Days are cut into windows that overlap by three quarters, each beginning with the logged state. Only the last quarter of
a window counts (of a day's first window all of it), so that outcomes are compared after the system has simulated for a
while; every request counts once. On days of very many requests the windows lie further apart, and requests between them
are left out.
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.tested_system import CloneBehaviour, SystemUnderTest
from logs_schema import Archive
from logs_schema.errors import ConfigError
from offline_rl.distributions import sample
from twin.contracts import Array, PyTree, Response
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import answers_of_history
from twin.placement.model import encode_days
from twin.placement.replay import replayed_answers, with_logged_luck
from twin.placement.responses import Answers, drawn_response
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, PlacementOutcome
from twin.placement.windows import Windows, joined, replayed_arrivals, select
from twin.rollout import follow, unroll

HORIZONS = (1, 5, 20, 50, 100, 400)
OVERLAP = 4
MAX_WINDOWS = 32
"""Windows of a day, at most about."""
MIN_COPIES = 5
"""Replications of every window in closed loop, at least."""
STATE_FEATURES = ("num_running", "num_waiting", "waiting_share", "backlog", "recent_wait")
_STATES = [[feature.name for feature in NODE_FEATURES].index(name) for name in STATE_FEATURES]
ANSWERS = {COMPLETED: "completed", FAILED: "failed", DROPPED: "dropped", REJECTED: "rejected"}


class DayOutcomes(NamedTuple):
    """Outcomes of the counted requests, [rows]."""

    node: np.ndarray  # the decisions
    wait_s: np.ndarray  # NaN where it did not start, or the start is unknown
    run_s: np.ndarray
    response_s: np.ndarray
    answer: np.ndarray  # labels
    started: np.ndarray  # bool: began to run, as far as known
    known: np.ndarray  # bool: the outcome is final


class HeldOutDay(NamedTuple):
    """One real day: its windows, the requests that count, and their logged outcomes."""

    day: dt.date
    windows: Windows
    counted: np.ndarray  # [T, W] bool
    logged: DayOutcomes
    states: np.ndarray  # [horizons, state features, nodes, windows] of the log


def days_windows(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], *, num_steps: int
) -> list[Windows]:
    """The overlapping windows of every day.

    Raises:
        ConfigError: A day has no request with a known decision.
    """
    found = []
    for day in days:
        apart = -(-archive.num_rows("requests", day) // MAX_WINDOWS)
        try:
            found.append(
                encode_days(
                    archive, encoding, [day], num_steps=num_steps, stride=max(1, num_steps // OVERLAP, apart)
                )
            )
        except ConfigError as error:
            raise ConfigError(f"{day}: {error.what}", where=error.where, allowed=error.allowed,
                              advice=error.advice) from error  # fmt: skip
    return found


def counted_once(windows: Windows) -> np.ndarray:
    """[T, W] bool: the requests of one day's overlapping windows that count, each in one window."""
    fresh = windows.num_steps - max(1, windows.num_steps // OVERLAP)
    late = np.arange(windows.num_steps)[:, None] >= fresh
    return windows.valid() & (late | (np.arange(windows.num_windows) == 0)[None])


def real_days(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], *, num_steps: int
) -> dict[dt.date, HeldOutDay]:
    """Logged windows and outcomes of every day."""
    chosen = sorted(set(days))
    parts = days_windows(archive, encoding, chosen, num_steps=num_steps)
    whole = joined(parts)
    table = answers_of_history(whole, encoding)
    outcome, illegal, states = jax.jit(
        lambda windows, table: _play(
            jax.random.key(0),
            encoding,
            windows,
            _response(encoding, windows, replayed_answers(windows, table)),
        )
    )(whole, table)
    del outcome  # the logged outcomes are more precise
    found, begin = {}, 0
    for day, part in zip(chosen, parts, strict=True):
        here = slice(begin, begin + part.num_windows)
        begin += part.num_windows
        counted = counted_once(part) & ~np.asarray(illegal)[: part.num_steps, here] & (part.node >= 0)
        logged = outcomes_from(
            part, counted, part.node, part.fate.start_s, part.fate.finish_s, part.fate.status,
            np.isfinite(part.fate.finish_s) | (part.fate.status == REJECTED),
        )  # fmt: skip
        found[day] = HeldOutDay(day, part, counted, logged, np.asarray(states)[..., here])
    return found


def states_with_logged_luck(
    tested: SystemUnderTest, days: Sequence[HeldOutDay], *, seed: int
) -> list[np.ndarray]:
    """The states at the horizons with logged decisions, run times and acceptances, and waits by the system under test:
    one array a day, as `HeldOutDay.states`. Windows are assigned to members in turn.
    """
    whole = joined([day.windows for day in days])
    chosen, place = deal(whole.num_windows, tested.num_members)

    def run(key: Array, windows: Windows, model: PyTree) -> Array:
        answers = with_logged_luck(tested.answers(model), windows)
        return _play(key, tested.encoding, windows, _response(tested.encoding, windows, answers))[2]

    states = jax.jit(run)(jax.random.key(seed), select(whole, chosen), tested.model)
    return _by_day(np.asarray(states)[..., place], days)


def closed_loop_days(
    tested: SystemUnderTest,
    behaviour: CloneBehaviour,
    days: Sequence[HeldOutDay],
    *,
    seed: int,
    known_until_s: float,
) -> list[DayOutcomes]:
    """The same requests under a clone of the behaviour in the system under test, one list entry a day.

    Every window is simulated `copies_of(tested)` times, as often by each member: the rows of the first replication
    come first. Outcomes later than `known_until_s`, the end of the log, count as unknown, as they do in the log.
    """
    whole, copies = joined([day.windows for day in days]), copies_of(tested)
    every = np.tile(np.arange(whole.num_windows), copies)

    def run(key: Array, windows: Windows, model: PyTree, params: PyTree) -> tuple[PlacementOutcome, Array]:
        def decide(key: Array, observation: PyTree, legal: Array, _: None) -> Array:
            return sample(key, behaviour.network.logits(params, observation, legal))

        problem = placement(tested.encoding.cluster, tested.encoding.problem)
        system = environment(
            problem._replace(observe_global=lambda _: jnp.zeros(())),
            _response(tested.encoding, windows, tested.answers(model)),
        )
        simulated = unroll(key, system, decide, None, windows.num_steps, (windows.arrival_s.shape[1],))
        return jax.tree.map(lambda leaf: leaf[:, 0], (simulated.outcome, simulated.action))

    outcome, action = jax.tree.map(
        np.asarray,
        jax.jit(run)(jax.random.key(seed), select(whole, every), tested.model, behaviour.params),
    )
    found, begin = [], 0
    for day in days:
        here = np.arange(begin, begin + day.windows.num_windows)
        begin, steps, replications = begin + day.windows.num_windows, day.windows.num_steps, []
        for copy in range(copies):
            place = here + copy * whole.num_windows
            start_s, finish_s, status = (leaf[:steps, place] for leaf in outcome)
            settled = np.isfinite(finish_s) | (status == REJECTED)
            settled &= (status == REJECTED) | (finish_s + day.windows.origin_s[None] <= known_until_s)
            node = action[:steps, place]
            replications.append(
                outcomes_from(day.windows, day.counted, node, start_s, finish_s, status, settled)
            )
        found.append(DayOutcomes(*(np.concatenate(leaf) for leaf in zip(*replications, strict=True))))
    return found


def copies_of(tested: SystemUnderTest) -> int:
    """Times that every window is simulated in closed loop: a multiple of the members."""
    return -(-MIN_COPIES // tested.num_members) * tested.num_members


def _by_day(leaf: np.ndarray, days: Sequence[HeldOutDay]) -> list[np.ndarray]:
    """The parts [..., windows] of the days' joined windows."""
    ends = np.cumsum([day.windows.num_windows for day in days])
    return np.split(leaf, ends[:-1], axis=-1)


def deal(num_windows: int, num_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Assigns windows to members in turn; each member has an equal consecutive share of the streams.

    Returns:
        The window of every stream (the first one again where shares are not full), and the stream of every window.
    """
    share = -(-num_windows // num_members)
    stream, window = np.arange(share * num_members), np.arange(num_windows)
    chosen = (stream % share) * num_members + stream // share
    return np.where(chosen < num_windows, chosen, 0), (window % num_members) * share + window // num_members


def outcomes_from(
    windows: Windows,
    counted: np.ndarray,
    node: np.ndarray,
    start_s: np.ndarray,
    finish_s: np.ndarray,
    status: np.ndarray,
    settled: np.ndarray,
) -> DayOutcomes:
    """The counted rows, in the order of their arrival, of outcomes [T, W] on the windows' clocks."""
    order = np.argsort(windows.row[counted], kind="stable")
    chosen, arrival, start, finish, code, known = (
        np.asarray(leaf)[counted][order]
        for leaf in (node, windows.arrival_s, start_s, finish_s, status, settled)
    )
    ran = known & np.isin(code, (COMPLETED, FAILED))
    begun = ran & np.isfinite(start)
    with np.errstate(invalid="ignore"):
        wait_s = np.where(begun, np.maximum(start - arrival, 0.0), np.nan)
        run_s = np.where(begun, np.maximum(finish - start, 0.0), np.nan)
        response_s = np.where(ran, np.maximum(finish - arrival, 0.0), np.nan)
    answer = np.array([ANSWERS.get(int(one), "unknown") for one in code], dtype="U9")
    return DayOutcomes(chosen, wait_s, run_s, response_s, answer, ran, known)


def rows_of(windows: Windows, counted: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """A leaf [T, W] of the counted requests, in the order of their arrival."""
    return np.asarray(leaf)[counted][np.argsort(windows.row[counted], kind="stable")]


def request_column(day: HeldOutDay, simulated: DayOutcomes, name: str) -> np.ndarray:
    """[rows of `simulated`] a field of the requests, once for every replication of the day."""
    column = rows_of(day.windows, day.counted, getattr(day.windows.request, name))
    return np.tile(column, len(simulated.known) // max(len(column), 1))


def known_in_log(day: HeldOutDay, simulated: DayOutcomes) -> np.ndarray:
    """[rows of `simulated`] bool: the logged outcome of the request is known."""
    return np.tile(day.logged.known, len(simulated.known) // max(len(day.logged.known), 1))


def _response(encoding: Encoding, windows: Windows, answers: Answers) -> Response:
    return drawn_response(encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), answers)


def _play(
    key: Array, encoding: Encoding, windows: Windows, response: Response
) -> tuple[PlacementOutcome, Array, Array]:
    """The logged decisions in a system: outcomes and illegal decisions [T, W], states at the horizons."""
    problem = placement(encoding.cluster, encoding.problem)
    seen = problem._replace(
        observe_global=lambda state: problem.observe_global(state).node[jnp.array(_STATES)]
    )
    system = environment(seen, response)
    actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
    simulated = follow(key, system, actions, (windows.arrival_s.shape[1],))
    steps = jnp.array([min(horizon, windows.arrival_s.shape[0]) for horizon in HORIZONS])
    states = simulated.global_observation[steps]
    outcome = jax.tree.map(lambda leaf: leaf[:, 0], simulated.outcome)
    return outcome, simulated.illegal[:, 0], states.reshape(*states.shape[:3], -1)

"""One-step forecasts: at every logged decision, in the logged state, draws of the outcome from the system under test.

The states follow the log, whatever is forecast, so decisions remain reactions to logged events. If the system under
test is the one that wrote the log, the logged outcome and every draw have the same distribution, and ranks are uniform.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.tested_system import CloneBehaviour, SystemUnderTest
from offline_rl.distributions import joint_entropy, joint_log_prob
from twin.contracts import Array, Outcome, PyTree, Response
from twin.environment import environment
from twin.placement.availability import time_to_availability_s
from twin.placement.bookkeeping import placement
from twin.placement.history import answers_of_history
from twin.placement.replay import ReplayTable, replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, UNKNOWN
from twin.placement.windows import Windows, joined, pad_windows, replayed_arrivals, select
from twin.rollout import follow

NUM_DRAWS = 60
"""Draws of every answer, at least; as many of each member."""
MIN_DAYS = 8
"""From so many days on, whole days are the units; below, four stretches of a window each."""
BLOCKS_PER_WINDOW = 4
MOST_ANSWERS = 1 << 23
"""Logged answers of all nodes in memory at once, one a request; of more, windows are taken in turn."""
MOST_SLOTS = 1 << 21
"""Slots of all nodes' books in memory at once."""
CARRIED_TOGETHER = 32
"""What was in flight as windows began is held in arrays of a multiple of so many rows."""
WIDER = 3
"""Programs for at most so many times the windows are used again."""
RESOLUTION, LEAST_S = 0.01, 1e-3
"""Durations within one per cent, of a millisecond at least, count as equal."""
RESOLUTION_OF_WHOLE = 0.02
"""Part of a whole duration up to which parts of it count as equal."""


class Forecast(NamedTuple):
    """Logged outcomes [rows] and draws of them [rows, draws], in order of arrival."""

    arrival_s: np.ndarray  # seconds since 1970
    day: np.ndarray  # index of the day
    unit: np.ndarray  # resampling unit, in [0, num_units)
    num_units: int
    node: np.ndarray
    service: np.ndarray
    agent: np.ndarray  # number on its day; -1 where the log hides it
    deadline_s: np.ndarray  # from arrival; inf without a deadline
    accepted: np.ndarray  # bool
    known: np.ndarray  # bool: the outcome is final
    status: np.ndarray
    # NaN where it did not start, or the start is unknown; of what may have been driven out, until it began first
    wait_s: np.ndarray
    run_s: np.ndarray  # NaN where it did not end, or the end is unknown
    draws_accepted: np.ndarray  # bool
    draws_status: np.ndarray
    draws_wait_s: np.ndarray  # given acceptance
    draws_run_s: np.ndarray
    # Minus the log probability of the logged decisions under the clone, nats
    surprise: np.ndarray = np.zeros(0)
    entropy: np.ndarray = np.zeros(0)  # entropy of the clone there, nats
    # Seconds since 1970 when it ended or was given up; NaN where unknown
    ended_s: np.ndarray = np.zeros(0)
    # Seconds since 1970 up to which every request that came is among these rows; inf without
    seen_until_s: np.ndarray | float = np.inf
    # Whether later requests move when these end: slow them, or drive them out
    moves: bool = False

    @property
    def start_s(self) -> np.ndarray:
        """[rows] seconds since 1970; NaN where it did not start."""
        return self.arrival_s + self.wait_s

    @property
    def finish_s(self) -> np.ndarray:
        """[rows] seconds since 1970; NaN where it did not end."""
        return self.start_s + self.run_s


class Forecaster:
    """Forecasts of every request with a known decision, of several days in one program where their windows are alike.

    Args:
        tested: The system under test.
        behaviour: A clone of the logged behaviour; its surprise at the logged decisions is recorded.
        seed: Seed of the draws.
        known_until_s: Seconds since 1970 of the end of the log. Draws that start or end later are censored, as they are
            in the log: otherwise only the log would lack its longest runs.
    """

    def __init__(
        self,
        tested: SystemUnderTest,
        behaviour: CloneBehaviour,
        *,
        seed: int,
        known_until_s: float = np.inf,
    ) -> None:
        self._tested, self._behaviour = tested, behaviour
        self._seed, self._known_until_s = seed, known_until_s
        num_draws = -(-NUM_DRAWS // tested.num_members)
        self._run = jax.jit(
            lambda key, windows, table, model, params: _drawn(
                key,
                tested._replace(model=model),
                behaviour._replace(params=params),
                windows,
                table,
                num_draws,
            )
        )
        self._width: dict[int, int] = {}  # of the program for windows of so many steps

    def forecast(self, parts: Sequence[Windows]) -> Forecast:
        """Forecasts of some days, given as disjoint windows day by day."""
        whole, tested = joined(parts), self._tested
        num_steps, width = whole.num_steps, self._width_for(whole)
        num_carried = -(-len(whole.carried.node) // CARRIED_TOGETHER) * CARRIED_TOGETHER
        found = []
        for begin in range(0, whole.num_windows, width):
            here = np.arange(begin, min(begin + width, whole.num_windows))
            windows = pad_windows(select(whole, here), num_steps, width, num_carried)
            table = answers_of_history(windows, tested.encoding, whole)
            key = jax.random.key(self._seed)
            key = jax.random.fold_in(key, begin) if begin else key
            drawn, clone, illegal = self._run(key, windows, table, tested.model, self._behaviour.params)
            leaves = [*(np.moveaxis(leaf, 1, -1) for leaf in drawn), *clone, illegal]
            found.append([np.asarray(leaf)[:, : len(here)] for leaf in leaves])
        *drawn, surprise, entropy, illegal = (
            np.concatenate(turns, axis=1) for turns in zip(*found, strict=True)
        )
        rows = whole.valid() & ~illegal & (whole.node >= 0)
        order, labels = _in_order(parts, rows)
        made = _forecast(
            whole, rows, order, labels, [leaf[rows][order] for leaf in drawn], self._known_until_s
        )
        return made._replace(surprise=surprise[rows][order], entropy=entropy[rows][order])

    def _width_for(self, whole: Windows) -> int:
        """Windows that are followed at once: as many as there are, as memory allows, as before where they fit."""
        problem, num_nodes = self._tested.encoding.problem, self._tested.encoding.cluster.num_nodes
        most = max(
            1, min(MOST_ANSWERS // (num_nodes * whole.num_steps), MOST_SLOTS // (num_nodes * problem.depth))
        )
        width = min(most, whole.num_windows)
        before = self._width.get(whole.num_steps, 0)
        if not width <= before <= WIDER * width:
            self._width[whole.num_steps] = before = width
        return before


def ranks(
    value: np.ndarray, draws: np.ndarray, *, beside_s: np.ndarray | None = None, seed: int = 0
) -> np.ndarray:
    """[rows] in (0, 1): ranks of durations among their draws [rows, draws]; uniform among equal values, by `seed`.

    Draws that are NaN do not count. Uniform where the value is one more draw. Where durations are parts of longer ones,
    `beside_s` [rows] is the rest: values within `RESOLUTION_OF_WHOLE` count as equal.
    """
    resolution = RESOLUTION if beside_s is None else RESOLUTION_OF_WHOLE
    rest_s = LEAST_S + (np.zeros(len(value)) if beside_s is None else beside_s)
    scale = np.log(rest_s + value)[:, None]
    log_draws = np.log(rest_s[:, None] + draws)
    below = np.sum(log_draws < scale - resolution, axis=1)
    equal = np.sum(np.abs(log_draws - scale) <= resolution, axis=1)
    even = np.random.default_rng(seed).random(len(value))
    return np.asarray((below + even * (equal + 1)) / (np.sum(np.isfinite(log_draws), axis=1) + 1))


def _drawn(
    key: Array,
    tested: SystemUnderTest,
    behaviour: CloneBehaviour,
    windows: Windows,
    table: ReplayTable,
    num_draws: int,
) -> tuple[tuple[Array, ...], tuple[Array, Array], Array]:
    """The draws [T, members * draws, windows] of acceptance, status, wait and run, and [T, 1, windows] the time until
    there was room, where requests are driven out; surprise and uncertainty of the clone, and whether the decision was
    illegal, [T, windows]."""
    encoding = tested.encoding
    log = drawn_response(
        encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), replayed_answers(windows, table)
    )
    problem = placement(encoding.cluster, encoding.problem)

    def logits(state: PyTree) -> Array:  # of the clone
        return behaviour.network.logits(behaviour.params, problem.observe(state), problem.legal(state))

    slim = problem._replace(observe=logits, observe_global=lambda _: jnp.zeros(()))
    actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
    drives_out = windows.driven_out is not None
    room = partial(time_to_availability_s, encoding.cluster) if drives_out else None
    system = environment(slim, _with_draws(log, tested, num_draws, room))
    simulated = follow(key, system, actions, (windows.arrival_s.shape[1],))
    clone = jax.vmap(lambda logits, action: (-joint_log_prob(logits, action)[0], joint_entropy(logits)[0]))(
        simulated.observation, simulated.action
    )
    return jax.tree.map(lambda leaf: leaf[:, :, 0], simulated.response_aux), clone, simulated.illegal[:, 0]


def _with_draws(
    log: Response,
    tested: SystemUnderTest,
    num_draws: int,
    room: Callable[[PyTree, Array], Array] | None = None,
) -> Response:
    """The logged response, with draws of every member to the same offers, and the time until there is room by `room`,
    as `response_aux`."""

    def advance(key: Array, private: PyTree, state: PyTree, node: Array) -> tuple[PyTree, Outcome]:
        after, outcome = log.advance(key, private, state, node)
        key_memory, key_draws = jax.random.split(jax.random.fold_in(key, 1))
        resolved = log.resolve_pending(private, state)

        def of_member(member: Array, keys: Array) -> tuple[Array, ...]:
            answers = tested.answers(tested.one_member(tested.model, member))
            response_aux = answers.response_aux(resolved, node)
            memory = answers.init(key_memory, state.clock_s.shape)

            def one(key: Array) -> tuple[Array, ...]:
                _, fate = answers.answer(key, memory, state, node, response_aux)
                wait_s = fate.start_s - state.clock_s[None]
                return fate.accepted, fate.status, wait_s, fate.finish_s - fate.start_s

            return jax.vmap(one)(keys)

        keys = jax.random.split(key_draws, (tested.num_members, num_draws))
        drawn = jax.vmap(of_member)(jnp.arange(tested.num_members), keys)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), drawn)
        known = () if room is None else (room(resolved, node)[None],)
        return after, outcome._replace(response_aux=(*flat, *known))

    return Response(log.init, advance, log.resolve_pending)


def _in_order(parts: Sequence[Windows], rows: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """The rows' order of arrival, and their day and unit in that order."""
    day = np.concatenate([np.full(part.num_windows, index) for index, part in enumerate(parts)])
    step, window = np.nonzero(rows)
    order = np.lexsort((step, window))
    step, window = step[order], window[order]
    if len(parts) >= MIN_DAYS:
        return order, (day[window], day[window])
    count = np.bincount(window, minlength=len(day))
    place = np.arange(len(window)) - (np.cumsum(count) - count)[window]
    unit = window * BLOCKS_PER_WINDOW + place * BLOCKS_PER_WINDOW // np.maximum(count[window], 1)
    return order, (day[window], np.unique(unit, return_inverse=True)[1])


def _seen_until_s(windows: Windows) -> np.ndarray:
    """[T, W] seconds since 1970 of the last arrival before requests are left out: of large days some stretches are
    looked at."""
    valid = windows.valid().T
    row = windows.row.T[valid]
    stretch = np.cumsum(np.diff(row, prepend=row[:1]) != 1)
    arrival_s = (windows.arrival_s + windows.origin_s).T
    last_s = np.full(stretch[-1] + 1, -np.inf)
    np.maximum.at(last_s, stretch, arrival_s[valid])
    found = np.full(valid.shape, -np.inf)
    found[valid] = last_s[stretch]
    return found.T


def _forecast(
    whole: Windows,
    rows: np.ndarray,
    order: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray],
    draws: Sequence[np.ndarray],
    known_until_s: float,
) -> Forecast:
    def pick(leaf: np.ndarray) -> np.ndarray:
        return np.asarray(leaf)[rows][order]

    arrival, start, finish = (
        pick(leaf) for leaf in (whole.arrival_s, whole.fate.start_s, whole.fate.finish_s)
    )
    status, origin = pick(whole.fate.status), np.broadcast_to(whole.origin_s, rows.shape)
    began = np.isfinite(start) & (status != DROPPED) & (status != REJECTED)
    ended = began & np.isfinite(finish) & np.isin(status, (COMPLETED, FAILED))
    accepted, drawn_status, wait_s, run_s, *room_s = draws
    waited_s = np.maximum(start - arrival, 0.0)
    if whole.driven_out is not None:
        waited_s = np.where(pick(whole.driven_out), np.minimum(waited_s, room_s[0][:, 0]), waited_s)
    arrived_s = arrival + pick(origin)
    with np.errstate(invalid="ignore"):
        ran_s = finish - start if whole.work_s is None else pick(whole.work_s)
        begins_s = arrived_s[:, None] + wait_s
        begins, ends = begins_s <= known_until_s, begins_s + run_s <= known_until_s
        return Forecast(
            arrival_s=arrived_s,
            day=labels[0], unit=labels[1], num_units=int(labels[1].max()) + 1,
            node=pick(whole.node), service=pick(whole.request.service), agent=pick(whole.request.agent),
            deadline_s=pick(whole.request.deadline_s),
            accepted=status != REJECTED, known=(status != UNKNOWN) & (np.isfinite(finish) | (status == REJECTED)),
            status=status,
            wait_s=np.where(began, waited_s, np.nan),
            run_s=np.where(ended, np.maximum(ran_s, 0.0), np.nan),
            draws_accepted=accepted, draws_status=drawn_status,
            draws_wait_s=np.where(np.isfinite(wait_s) & begins, np.maximum(wait_s, 0.0), np.nan),
            draws_run_s=np.where(np.isfinite(run_s) & ends, np.maximum(run_s, 0.0), np.nan),
            ended_s=np.where(np.isfinite(finish), finish + pick(origin), np.nan),
            seen_until_s=pick(_seen_until_s(whole)), moves=whole.work_s is not None or whole.driven_out is not None,
        )  # fmt: skip

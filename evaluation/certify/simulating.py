"""Held-out days as the system under test simulates them, with the logged arrivals.

Decisions are those of a clone of the logged behaviour, which reacts to simulated events (closed loop), or the logged
ones, then with the logged run times and acceptances: logged decisions were reactions to logged run times, and with new
draws of run times they would overload the very system that wrote the log.

One program does both, and every replication: most of the time that a short log takes is the compiler's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.logged_days import DayOutcomes, HeldOutDay, at_horizons, outcomes_from
from evaluation.certify.tested_system import CloneBehaviour, SystemUnderTest
from evaluation.judges.judge import slim
from logs_schema.progress import Stage, unseen
from offline_rl.distributions import sample
from twin.contracts import Array, PyTree
from twin.environment import environment
from twin.imitation.fidelity import STATES
from twin.placement.awaited_arrivals import arrivals_of, as_in_log
from twin.placement.bookkeeping import placement
from twin.placement.replay import with_logged_luck
from twin.placement.responses import drawn_response
from twin.placement.types import REJECTED, UNKNOWN, PlacementOutcome
from twin.placement.windows import Windows, joined, select
from twin.rollout import unroll

MIN_COPIES = 5
"""Replications of every window in closed loop, at least."""


class SimulatedWindows(NamedTuple):
    """Windows as the system under test has them; the last axis are the windows.

    Where agents await their answers outcomes are as if every request had come at its logged time; not known of those
    that have not come.
    """

    outcome: PlacementOutcome  # [T, W]
    node: Array  # [T, W] the decisions
    states: Array  # [horizons, state features, nodes, W]


class Simulation:
    """Simulates held-out days again and again; see the module."""

    def __init__(
        self, tested: SystemUnderTest, behaviour: CloneBehaviour, days: Sequence[HeldOutDay], *, seed: int
    ) -> None:
        self._tested, self._behaviour, self._days = tested, behaviour, days
        self._windows, self._key = joined([day.windows for day in days]), jax.random.key(seed)
        self._program = jax.jit(self._run)

    def states_with_logged_luck(self) -> list[np.ndarray]:
        """The states at the horizons with logged decisions, run times and acceptances, and waits by the system under
        test: one array a day, as `HeldOutDay.states`."""
        states = self._simulated(0, follows=True).states
        ends = np.cumsum([day.windows.num_windows for day in self._days])
        return np.split(states, ends[:-1], axis=-1)

    def closed_loop(self, known_until_s: float, stage: Stage = unseen) -> list[DayOutcomes]:
        """The same requests under the clone, one list entry a day: the rows of the first replication come first.

        Every window is simulated `MIN_COPIES` times at least, as often by each member.
        Outcomes later than `known_until_s`, the end of the log, count as unknown, as they do in the log. `stage` is
        told how many replications are done.
        """
        members = self._tested.num_members
        num_copies = -(-MIN_COPIES // members) * members
        copies = []
        for copy in range(num_copies):
            copies.append(self._simulated(1 + copy, follows=False))
            stage(copy + 1.0, float(num_copies))
        found, begin = [], 0
        for day in self._days:
            here = slice(begin, begin + day.windows.num_windows)
            begin = here.stop
            outcomes = [_outcomes_of(day, copy, here, known_until_s) for copy in copies]
            found.append(DayOutcomes(*(np.concatenate(leaf) for leaf in zip(*outcomes, strict=True))))
        return found

    def _simulated(self, number: int, *, follows: bool) -> SimulatedWindows:
        """All windows once, as NumPy arrays; in one number after the other, members simulate other windows."""
        chosen, place = deal(self._windows.num_windows, self._tested.num_members, number)
        key = jax.random.fold_in(self._key, number)
        windows, params = select(self._windows, chosen), self._behaviour.params
        found = self._program(key, windows, self._tested.model, params, follows)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[..., place], found)

    def _run(
        self, key: Array, windows: Windows, model: PyTree, params: PyTree, follows: Array
    ) -> SimulatedWindows:
        """The windows once, by the log's decisions and luck where `follows`, else by the clone's."""
        encoding, network = self._tested.encoding, self._behaviour.network

        def decide(key: Array, observation: PyTree, legal: Array, logged: Array) -> Array:
            return jnp.where(follows, logged, sample(key, network.logits(params, observation, legal)))

        answers = with_logged_luck(self._tested.answers(model), windows, follows)
        problem = placement(encoding.cluster, encoding.problem)
        arrivals = arrivals_of(windows, in_place=follows)
        system = environment(
            problem._replace(observe_global=lambda state: problem.observe_global(state).node[STATES]),
            drawn_response(encoding.cluster, encoding.problem.depth, arrivals, answers),
        )
        logged = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
        found = unroll(key, system, decide, logged, windows.num_steps, (windows.arrival_s.shape[1],))
        played = as_in_log(windows, slim(found))
        outcome, node, came_s, has_come = (
            jax.tree.map(lambda leaf: leaf[:, 0], part)
            for part in (played.outcome, played.action, played.decision_info.arrival_s, played.active)
        )
        if windows.think_s is not None:
            outcome = _as_if_in_place(outcome, came_s - jnp.asarray(windows.arrival_s), has_come)
        return SimulatedWindows(outcome, node, at_horizons(found.global_observation))


def _as_if_in_place(outcome: PlacementOutcome, later_s: Array, has_come: Array) -> PlacementOutcome:
    """The outcomes of requests that came so much later than in the log, on the log's clock."""
    return PlacementOutcome(
        jnp.where(has_come, outcome.start_s - later_s, jnp.inf),
        jnp.where(has_come, outcome.finish_s - later_s, jnp.inf),
        jnp.where(has_come, outcome.status, UNKNOWN),
    )


def deal(num_windows: int, num_members: int, turn: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Assigns windows to members in turn; each member has an equal consecutive share of the streams.

    Args:
        num_windows, num_members: How many there are.
        turn: In so many consecutive turns as there are members, each has every window once.

    Returns:
        The window of every stream (the first one again where shares are not full), and the stream of every window.
    """
    share = -(-num_windows // num_members)
    member, place = np.divmod(np.arange(share * num_members), share)
    chosen = place * num_members + (member + turn) % num_members
    window = np.arange(num_windows)
    stream = (window - turn) % num_members * share + window // num_members
    return np.where(chosen < num_windows, chosen, 0), stream


def _outcomes_of(day: HeldOutDay, copy: SimulatedWindows, here: slice, known_until_s: float) -> DayOutcomes:
    """The counted rows of a day in one replication; `here` are its windows."""
    steps = day.windows.num_steps
    start_s, finish_s, status = (leaf[:steps, here] for leaf in copy.outcome)
    settled = np.isfinite(finish_s) | (status == REJECTED)
    settled &= (status == REJECTED) | (finish_s + day.windows.origin_s[None] <= known_until_s)
    return outcomes_from(
        day.windows, day.counted, np.asarray(copy.node[:steps, here]), start_s, finish_s, status, settled
    )

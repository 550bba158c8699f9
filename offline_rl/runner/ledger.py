"""The ledger of what is in flight, updated by events: the runner's own copy of `twin.placement.bookkeeping`.

Between decisions requests are placed, start and finish; at a decision the ledger has what every node holds. Sums that
only events change are kept as they change; what the clock changes is one pass over the requests that run. The fading
memory of waits moves from decision to decision, as in training: waits seen since the last decision count in full.

The ledger learns: runs that ended move, at the next decision, how long runs are expected to take on their node
(`offline_rl.runner.run_levels`). It also watches: `Ledger.watch` raises an alarm when requests or run times are no
longer those of training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from offline_rl.errors import PolicyInputError
from offline_rl.runner.cold_starts import LedgerColdStarts, ServiceUse
from offline_rl.runner.descriptions import (
    Answer,
    Decision,
    Explanation,
    Held,
    Node,
    Request,
    described,
    refuse_other_types,
)
from offline_rl.runner.features import LOAD, RECENT_STARTS, RECENT_WAIT
from offline_rl.runner.places import LedgerPlaces
from offline_rl.runner.reading import as_held, impossible
from offline_rl.runner.run_levels import LedgerRunLevels
from offline_rl.runner.running_slots import RunningSlots
from offline_rl.runner.setting import RESOURCES
from offline_rl.runner.wakes import LedgerWakes
from offline_rl.runner.watch import Watch

if TYPE_CHECKING:
    from offline_rl.runner.policy import Policy
    from offline_rl.runner.table import NodeTable

_WAITING_CORES, _RUNNING, _WAITING, _WAITING_WORK, _OLDEST = range(len(RESOURCES), len(RESOURCES) + 5)
"""Rows of `LOAD`, after the used resources; the work of waiting requests stands where all work will."""


@dataclass(slots=True)
class _Entry:
    row: int
    slot: int
    arrival_s: float
    start_s: float | None
    run_s: float
    demand: tuple[float, float, float]
    service: int
    pair_level: float  # of the service on the node as it was placed
    use: ServiceUse | None  # None where nothing starts cold


class Ledger:
    """What is in flight on a policy's nodes. Not for several threads at once.

    Args:
        policy: Whose features are computed.
        nodes: All nodes, with what they hold at first (its requests are known by `(node name, position)`).
        clock_s: When that was; None where they hold nothing.
        watch: Is updated with decisions and runs; None: one of its own (see `watch`).

    Raises:
        PolicyInputError: A node is described twice, or its `used_*` is stated (the ledger counts what is held).
    """

    def __init__(
        self, policy: Policy, nodes: Sequence[Node], clock_s: float | None = None, watch: Watch | None = None
    ) -> None:
        table = policy.table_of(nodes)
        units = table.facts.run_units
        wakes, known_places = policy.setting.wakes, policy.setting.concurrency
        delay_units = None if wakes is None and not known_places else np.zeros(len(table.names))
        own = table.facts._replace(run_units=units.copy(), delay_units=delay_units)  # of this ledger alone
        self._policy, self._table = policy, replace(table, facts=own, trained_units=units)
        self._trained_units = units
        self.watch = Watch(policy.contract.alarm) if watch is None else watch
        num_rows = len(self._table.names)
        self._entries: dict[Any, _Entry] = {}
        self._sums = np.zeros((len(RESOURCES) + 4, num_rows))
        self._waiting: list[dict[Any, float]] = [{} for _ in range(num_rows)]
        self._oldest = np.full(num_rows, np.inf)
        dynamics, variance = policy.setting.dynamics, table.run_variance
        self._levels = (
            None
            if dynamics is None or variance is None
            else LedgerRunLevels(dynamics, variance, policy.setting.trained_until_s)
        )
        if self._levels is not None and clock_s is not None:
            self._levels.move_to(clock_s)
        cold = policy.setting.cold
        places, ratio = policy.setting.places_of(self._table.names), units * policy.setting.time_unit_s
        self._cold = None if cold is None else LedgerColdStarts(cold, ratio, places)
        self._wakes = None if wakes is None else LedgerWakes(wakes, places)
        self._places = LedgerPlaces(known_places, places, ratio) if known_places else None
        self._slots = RunningSlots()
        self._recent, self._new = np.zeros((2, num_rows)), np.zeros((2, num_rows))
        self._decided_s = clock_s
        self._available = self._table.choosable.copy()
        for node in nodes:
            self._begin(node)

    def place(self, request_id: Any, node: str, request: Request | Mapping[str, Any], clock_s: float) -> None:
        """A node has taken a request: it waits there until `start`.

        Raises:
            PolicyInputError: The request is in flight already.
        """
        asked = described(Request, request)
        held = as_held(asked, clock_s, self._policy.expected_run_s(asked))
        self.hold(request_id, node, held, startup_s=self.startup_s(node, held))

    def hold(self, request_id: Any, node: str, held: Held, *, startup_s: float = 0.0) -> None:
        """A request that a node was found to hold already; its wait so far is not counted as seen.

        Args:
            request_id: By which it is known later.
            node: Its node.
            held: The request.
            startup_s: The start-up that was due as it arrived (`startup_s`), if its run takes it.

        Raises:
            PolicyInputError: The request is in flight already.
        """
        if request_id in self._entries:
            raise PolicyInputError("this request is in flight already", where=repr(request_id))
        row = self._row(node)
        run_s = self._policy.expected_run_s(held)
        requested = (held.cpu_cores, held.memory_gib, held.gpus)
        known = self._policy.setting.demanded
        demand = tuple(float(each) if counts else 0.0 for each, counts in zip(requested, known, strict=True))
        amounts = (held.arrival_s, run_s, *requested, held.start_s or 0.0)
        if not all(map(math.isfinite, amounts)) or min(run_s, *requested) < 0.0:
            raise PolicyInputError("a request cannot be like this", where=f"{request_id!r}: {held}")
        service = self._policy.vocabulary.service_index(held)
        level = 0.0 if self._levels is None or row < 0 else float(self._levels.pair[service, row])
        use = None
        if self._cold is not None and row >= 0:
            use = self._cold.placed(service, row, held.arrival_s, run_s)
            run_s += startup_s / self._cold.ratio[service, row]
        entry = _Entry(row, -1, held.arrival_s, held.start_s, run_s, demand, service, level, use)  # type: ignore[arg-type]
        self._entries[request_id] = entry
        if row < 0:
            return
        if held.start_s is None:
            self._add_waiting(request_id, entry)
        else:
            self._add_running(entry)

    def startup_s(self, node: str, held: Held) -> float:
        """The start-up that is due on a node as a request arrives there; 0 where no run is expected."""
        row = self._row(node)
        if self._cold is None or row < 0 or self._policy.expected_run_s(held) <= 0.0:
            return 0.0
        self._cold.begin(held.arrival_s)
        return float(self._cold.due_s(self._policy.vocabulary.service_index(held), held.arrival_s)[row])

    def start(self, request_id: Any, at_s: float) -> bool:
        """A request began to run; False where it is not in flight or runs already; PolicyInputError for no instant."""
        _refuse_no_instant("at_s", at_s)
        entry = self._entries.get(request_id)
        if entry is None or entry.start_s is not None:
            return False
        entry.start_s = at_s
        if entry.row >= 0:
            self._remove_waiting(request_id, entry)
            self._add_running(entry)
            self._new[:, entry.row] += at_s - entry.arrival_s, 1.0
        return True

    def correct_start(self, request_id: Any, at_s: float, *, waited: bool) -> bool:
        """A request that was taken to run began at another time; False where it is not in flight, or waits.

        Args:
            request_id: As it was placed.
            at_s: When it began.
            waited: Whether its wait until then counts as seen.
        """
        entry = self._entries.get(request_id)
        if entry is None or entry.start_s is None:
            return False
        entry.start_s = at_s
        if entry.row >= 0:
            self._remove_running(entry)
            self._add_running(entry)
            self._new[:, entry.row] += (at_s - entry.arrival_s, 1.0) if waited else 0.0
        return True

    def finish(
        self,
        request_id: Any,
        ran_until_s: float | None = None,
        *,
        refused: bool = False,
        failed: bool = False,
    ) -> bool:
        """A request left its node: completed, failed, killed or dropped; False where it is not in flight.

        One that others drove out, and that waits again, is finished without `ran_until_s` and placed anew.

        Args:
            request_id: As it was placed.
            ran_until_s: When its run ended, if it ran: the ledger learns from it how long such runs take there.
            refused: The node did not take it after all: its service did not run there.
            failed: Its run failed, or was killed: where nodes lose what runs on them it tells nothing of run times.

        Raises:
            PolicyInputError: `ran_until_s` is no instant.
        """
        _refuse_no_instant("ran_until_s", 0.0 if ran_until_s is None else ran_until_s)
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return False
        if entry.row >= 0:
            if entry.start_s is None:
                self._remove_waiting(request_id, entry)
            else:
                self._remove_running(entry)
                if ran_until_s is not None and not (failed and self._table.facts.hazard is not None):
                    self._learn(entry, ran_until_s - entry.start_s)
            if self._wakes is not None and not refused:
                last_s = self._decided_s if ran_until_s is None else ran_until_s
                self._wakes.ended(entry.row, entry.arrival_s if last_s is None else last_s)
            if refused and self._cold is not None and entry.use is not None:
                self._cold.refused(entry.service, entry.row, entry.use)
        return True

    def remember(self, older: Ledger) -> None:
        """Takes over what an older ledger of the same policy has seen and learned of the nodes of both."""
        mine, theirs = self._table.row_of, older._table.row_of
        both = sorted(mine.keys() & theirs.keys())
        rows = [mine[name] for name in both], [theirs[name] for name in both]
        if self._levels is not None and older._levels is not None:
            self._levels.remember(older._levels, *rows)
        if self._cold is not None and older._cold is not None:
            self._cold.remember(older._cold, *rows)
        if self._wakes is not None and older._wakes is not None:
            self._wakes.ended_s[rows[0]] = older._wakes.ended_s[rows[1]]
        self._recent[:, rows[0]], self._new[:, rows[0]] = older._recent[:, rows[1]], older._new[:, rows[1]]
        self._decided_s = older._decided_s  # from when on these waits fade

    def _learn(self, entry: _Entry, run_s: float) -> None:
        setting = self._policy.setting
        if not (0.0 < run_s < math.inf and entry.run_s > 0.0):
            return
        if entry.use is not None and not entry.use.was_known:
            return
        pair = entry.service, entry.row
        expected_s = entry.run_s * setting.time_unit_s
        name = self._table.names[entry.row]
        if name in setting.node_names:
            self.watch.ran(name, run_s / (expected_s * self._trained_units[pair]))
        if self._levels is not None:
            residual = math.log(run_s / (expected_s * self._trained_units[pair]))
            self._levels.ended(entry.row, entry.service, residual, entry.pair_level)

    def set_available(self, node: str, available: bool) -> None:
        """Whether a node can be offered now."""
        row = self._row(node)
        if row >= 0:
            self._available[row] = available

    def decide(self, request: Request | Mapping[str, Any], clock_s: float) -> Decision:
        """The decision for a request in hand, now; errors as for `Policy.decide`."""
        decision = self._asked(self._policy.decide_on, request, clock_s)
        self.watch.decided(decision.unlike)
        return decision

    def explain(self, request: Request | Mapping[str, Any], clock_s: float) -> Explanation:
        """The decision and what it rests on; errors as for `Policy.explain`."""
        return self._asked(self._policy.explain_on, request, clock_s)

    def _asked(self, ask: Callable[..., Answer], request: Any, clock_s: float) -> Answer:
        try:
            request = described(Request, request)
            load = self.load(clock_s)
            return ask(self.table_for(request, clock_s), load, self._available, request, clock_s)
        except (AttributeError, TypeError):
            refuse_other_types((), request, clock_s)
            raise

    def load(self, clock_s: float) -> np.ndarray:
        """What every node holds at a decision [load rows, rows]; moves the fading memory of waits to it.

        Raises:
            PolicyInputError: The clock is not finite; nothing has moved.
        """
        _refuse_no_instant("clock_s", clock_s)
        elapsed_s = 0.0 if self._decided_s is None else max(clock_s - self._decided_s, 0.0)
        self._decided_s = clock_s
        if self._levels is not None:
            self._levels.move_to(clock_s)
        self._recent *= math.exp(-elapsed_s / self._policy.setting.memory_s)
        self._recent += self._new
        self._new[:] = 0.0
        load = np.empty((len(LOAD), len(self._oldest)))
        load[:_WAITING_WORK] = self._sums[:_WAITING_WORK]
        load[_WAITING_WORK] = self._slots.core_seconds_left(clock_s, len(self._oldest))
        load[_WAITING_WORK] += self._sums[_WAITING_WORK]
        np.subtract(clock_s, self._oldest, out=load[_OLDEST])  # nothing waits: minus infinity, a feature of 0
        load[RECENT_WAIT : RECENT_STARTS + 1] = self._recent
        return load

    def table_for(self, request: Request, clock_s: float) -> NodeTable:
        """The table of nodes, with how long a request's service runs on them by now."""
        index = self._policy.vocabulary.service_index(request)
        units = self._table.facts.run_units[index]
        if self._levels is not None:
            np.multiply(self._trained_units[index], np.exp(self._levels.of(index)), out=units)
        delay_s: Any = 0.0
        if self._wakes is not None:
            delay_s = self._wakes.left_s(clock_s, self._sums[_RUNNING], self._sums[_WAITING], self._oldest)
        if self._places is not None:
            delay_s = delay_s + self._places.left_s(index, clock_s, self._entries.values())
        if (delay_units := self._table.facts.delay_units) is not None:
            np.divide(delay_s, self._policy.setting.time_unit_s, out=delay_units)
        if self._cold is None:
            return self._table
        if self._levels is None:
            np.copyto(units, self._trained_units[index])
        expected_s = self._policy.expected_run_s(request)
        self._cold.begin(clock_s)
        units *= 1.0 + self._cold.share(index, expected_s, clock_s)
        return self._table

    def nodes(self, clock_s: float) -> list[Node]:
        """The ledger as descriptions, for a fallback, for example."""
        self.load(clock_s)
        held: dict[int, list[Held]] = {}
        for one in self._entries.values():
            each = Held(one.arrival_s, one.start_s, one.run_s, None, *one.demand)
            held.setdefault(one.row, []).append(each)
        return [
            Node(name, held.get(row, ()), bool(self._available[row]), *self._recent[:, row].tolist())
            for name, row in self._table.row_of.items()
        ]

    def _begin(self, node: Node) -> None:
        if (node.used_cpu_cores, node.used_memory_gib, node.used_gpus) != (None, None, None):
            raise PolicyInputError("books count what is held, not what is stated as used", where=node.name)
        row = self._row(node.name)
        if row >= 0:
            self._available[row] &= node.available
            self._recent[:, row] = node.recent_wait_s, node.recent_starts
        for position, one in enumerate(node.held):
            self.hold((node.name, position), node.name, one)

    def _row(self, node: str) -> int:
        """The row of a node or of a machine's node; -1 for strangers, whose requests count for nothing."""
        row_of = self._table.row_of
        return (
            row_of[node]
            if node in row_of
            else row_of.get(self._policy.setting.node_of_machine.get(node, ""), -1)
        )

    def _add_waiting(self, request_id: Any, entry: _Entry) -> None:
        cores = entry.demand[0]
        self._waiting[entry.row][request_id] = entry.arrival_s
        self._oldest[entry.row] = min(self._oldest[entry.row], entry.arrival_s)
        self._change(entry.row, (0.0, 0.0, 0.0, cores, 0.0, 1.0, entry.run_s * cores))

    def _remove_waiting(self, request_id: Any, entry: _Entry) -> None:
        cores, waiting = entry.demand[0], self._waiting[entry.row]
        del waiting[request_id]
        if entry.arrival_s <= self._oldest[entry.row]:
            self._oldest[entry.row] = min(waiting.values(), default=math.inf)
        self._change(entry.row, (0.0, 0.0, 0.0, -cores, 0.0, -1.0, -entry.run_s * cores))

    def _add_running(self, entry: _Entry) -> None:
        start_s = entry.arrival_s if entry.start_s is None else entry.start_s
        entry.slot = self._slots.take(entry.row, start_s + entry.run_s, entry.demand[0])
        self._change(entry.row, (*entry.demand, 0.0, 1.0, 0.0, 0.0))

    def _remove_running(self, entry: _Entry) -> None:
        self._slots.free(entry.slot)
        self._change(entry.row, (*(-each for each in entry.demand), 0.0, -1.0, 0.0, 0.0))

    def _change(self, row: int, amounts: tuple[float, ...]) -> None:
        column = self._sums[:, row]
        column += amounts
        if column[_RUNNING] == 0.0:
            column[: len(RESOURCES)] = 0.0  # what rounding left
        if column[_WAITING] == 0.0:
            column[_WAITING_CORES] = column[_WAITING_WORK] = 0.0


def _refuse_no_instant(name: str, at_s: float) -> None:
    if not math.isfinite(at_s):
        raise impossible(name, at_s, "seconds since 1970")

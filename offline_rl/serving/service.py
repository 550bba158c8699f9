"""The decision service: question in, answer out, whatever becomes of the policy.

Everything but the policy's own arithmetic happens on the event loop's thread; the policy runs in another, with a
deadline. When it is too slow, raises, or can name no candidate, the fallback answers, and a counter has the reason.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from offline_rl.runner import Decision, Node
from offline_rl.runner.watch import KINDS
from offline_rl.serving.answers import (
    BUSY,
    EXPLORE,
    FALLBACK,
    NOTHING,
    ONLY,
    OVERLOAD,
    POLICY,
    RAISED,
    SLOW,
    UNABLE,
    Answer,
    OpenQuestion,
    Reply,
    ReportedEvents,
    answer_of,
)
from offline_rl.serving.choosing import (
    NO_NODE,
    Choice,
    fallback_choice,
    policy_choice,
    propensity,
    rule_choice,
    share_of,
)
from offline_rl.serving.cluster import CandidateView, LiveCluster, by_name
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.decision_log import DecisionLog
from offline_rl.serving.errors import QueryError
from offline_rl.serving.fallbacks import fallback_named
from offline_rl.serving.inventory import Remembered
from offline_rl.serving.kept_inventory import KeptInventory
from offline_rl.serving.loop_lag import LoopLag
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import Notices
from offline_rl.serving.placed import PlacedRequest
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import PolicySlot, ServedPolicy
from offline_rl.serving.queries import PlacementQuery
from offline_rl.serving.rows import RUNNING, UNKNOWN, WAITING, decision_row, request_row

MAX_COMPARISONS = 64
"""Comparisons with the policy that may be under way after the answer; beyond that they are left out."""
COMPARISON_S = 1.0
"""How long a comparison may take: no answer waits for it."""


class Service:
    """Answers questions. Belongs to one event loop.

    Args:
        slot: The policy in use.
        config: How decisions are taken.
        log: Where they are written.
        metrics: Where they are counted.
        clock: Seconds since 1970.
        kept: Where the inventory is kept.

    Raises:
        ServingError: The inventory that is kept cannot be read.
    """

    def __init__(
        self, slot: PolicySlot, config: ServiceConfig, log: DecisionLog, metrics: Metrics,
        clock: Callable[[], float] = time.time, kept: KeptInventory | None = None,
    ) -> None:  # fmt: skip
        self.slot, self.config, self.log, self.metrics, self.clock = slot, config, log, metrics, clock
        self._policy = slot.policy
        self.cluster, self.loop_lag = LiveCluster(self._policy), LoopLag()
        self._kept, self._keeping = kept or KeptInventory(), asyncio.Lock()
        self._rng, self._fallback = np.random.default_rng(config.seed), fallback_named(config.fallback)
        self._positions: tuple[tuple[str, ...], dict[str, int], Remembered] = ((), {}, Remembered())
        self._comparisons: set[asyncio.Task] = set()
        # What became of requests whose comparison is under way, by id(query): it is logged after their decision
        self._held_back: dict[int, list[tuple[PlacedRequest, str]]] = {}
        self._errors, self._alarms = Notices(), Notices()  # however many errors there are, alarms are said
        self._alarmed: frozenset[str] = frozenset()
        for kind in KINDS:
            metrics.alarm.labels(kind).set_function(partial(self._alarm_level, kind))
        metrics.in_flight.set_function(lambda: len(self.cluster.placements))
        if nodes := self._kept.read():
            self._take(nodes)

    def filter(self, query: PlacementQuery) -> CandidateView:
        """The candidates and the reasons against them; a pod that has one node left is taken to go there.

        kube-scheduler does not request priorities where one node is left.
        """
        now_s = self._turn()
        self.cluster.void(query.request_id)
        view = self.cluster.view(query)
        left = np.flatnonzero(view.feasible)
        if len(left) == 1:
            answer = Answer(view.names[int(left[0])], [], ONLY, "", view)
            self._record(self._place(query, answer, now_s), answer, 1.0)
        elif not len(left):
            self.metrics.nothing_feasible.inc()
        return view

    async def decide(self, query: PlacementQuery, begun_s: float | None = None) -> Answer:
        """Answers a question within its deadline.

        Args:
            query: The question.
            begun_s: When it arrived, on the clock of `time.monotonic`; now by default.
        """
        deadline_s = (time.monotonic() if begun_s is None else begun_s) + self.config.deadline_s
        now_s = self._turn()
        self.cluster.void(query.request_id)
        view = self.cluster.view(query)
        if not view.feasible.any():
            self.metrics.nothing_feasible.inc()
            answer = Answer(None, [0] * len(view.names), FALLBACK, NOTHING, view)
            self._record(self.cluster.placement(query, view, "", now_s), answer, None)
            return answer
        fallback = fallback_choice(self._fallback, view, self._rng)
        if self.loop_lag.lag_s > self.config.deadline_s:
            return self._decide_by_fallback(query, fallback, view, now_s)
        fallback = self._by_rule(query, view, now_s) or fallback
        asked = OpenQuestion(query, view, now_s, self._policy, self.cluster.question(query, now_s), fallback)
        if self._rng.random() < self.config.explore:
            named = int(self._rng.choice(np.flatnonzero(view.feasible)))
            answer = answer_of(EXPLORE, fallback, named, "", view)
        elif share_of(query.request_id) >= self.config.share:
            answer = answer_of(FALLBACK, fallback, fallback.best, "", view)
        else:
            return await self._decide_by_policy(asked, deadline_s)
        placement = self._place(query, answer, now_s)
        if len(self._comparisons) < MAX_COMPARISONS:
            self._held_back[id(placement.query)] = []
            task = asyncio.create_task(self._compare(asked, placement, answer))
            self._comparisons.add(task)
            task.add_done_callback(self._comparisons.discard)
        else:
            self._record_reply(asked, placement, answer, Reply(reason=BUSY))
        return answer

    def names(self) -> tuple[str, ...]:
        """All nodes that the policy in use, or the inventory, knows."""
        self._turn()
        return self.cluster.names

    async def stock(self, nodes: list[Node]) -> bool:
        """Takes an inventory in place of the last one; whether a server that is started again will have it."""
        self._turn()
        self._take(nodes)
        async with self._keeping:  # one after the other, and beside the answers: a disk may take its time
            return await asyncio.to_thread(self._kept.write, nodes)

    def _take(self, nodes: list[Node]) -> None:
        self.cluster.stock(nodes)
        self.metrics.known_nodes.set(len(self.cluster.names))
        if absent := sorted(self.cluster.inventory.absent):
            names = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
            self._errors.write("absent", f"{len(absent)} nodes of training are not in the inventory: {names}")

    def report(self, events: list[RequestEvent]) -> ReportedEvents:
        """Notes what became of requests, event by event; those that cannot be are left out."""
        known, refused = 0, {}
        self.expire()
        for index, event in enumerate(events):
            try:
                self.cluster.refuse_impossible(event)
            except QueryError as error:
                refused[index] = str(error)
                self.metrics.refused_events.inc()
                continue
            placement = self.cluster.report(event)
            if placement is None:
                self.metrics.unknown_events.inc()
            else:
                known += 1
                self._log_outcome(placement, event.status or RUNNING)
        return ReportedEvents(known, len(events) - known - len(refused), refused)

    def expire(self) -> float:
        """Takes out of the load what is over by now, without a question; returns the clock."""
        now_s = self.clock()
        self.metrics.assumed_finishes.inc(self.cluster.expire(now_s))
        return now_s

    async def drain(self) -> None:
        """Waits for comparisons under way."""
        await asyncio.gather(*self._comparisons, return_exceptions=True)

    def _by_rule(self, query: PlacementQuery, view: CandidateView, now_s: float) -> Choice | None:
        """What the rule names that stands in for the policy; None where there is none, or it can name no candidate."""
        if not self._policy.has_rule:
            return None
        try:
            decision = self.cluster.rule_question(query, now_s)()
            choice = rule_choice(
                decision, self._position(self._policy, decision, view.names), view, self._rng
            )
        except Exception as error:  # what stands in must not end the show
            self._say_error("the rule failed, a heuristic answers", error)
            return None
        return None if choice.best == NO_NODE else choice

    def _decide_by_fallback(
        self, query: PlacementQuery, fallback: Choice, view: CandidateView, now_s: float
    ) -> Answer:
        """The fallback's answer where the server is behind: the policy does not run, and the answer is late already."""
        is_policys = share_of(query.request_id) < self.config.share
        self.metrics.fallbacks.labels(OVERLOAD).inc(is_policys)
        answer = answer_of(FALLBACK, fallback, fallback.best, OVERLOAD, view)
        placement = self._place(query, answer, now_s)
        weight = propensity(
            view.names.index(placement.offered),
            None,
            fallback,
            canary=0.0,
            explore=0.0,
            num_feasible=len(placement.query.names),
        )
        self._record(placement, answer, weight, fallback_node=answer.node)
        return answer

    async def _decide_by_policy(self, asked: OpenQuestion, deadline_s: float) -> Answer:
        reply = await self._reply(asked, deadline_s)
        if reply.choice is None:
            self.metrics.fallbacks.labels(reply.reason).inc()
            answer = answer_of(FALLBACK, asked.fallback, asked.fallback.best, reply.reason, asked.view)
        else:
            answer = answer_of(POLICY, reply.choice, reply.choice.best, "", asked.view)
        answer = replace(answer, decision=reply.decision)
        self._record_reply(asked, self._place(asked.query, answer, asked.asked_s), answer, reply)
        return answer

    async def _compare(self, asked: OpenQuestion, placement: PlacedRequest, answer: Answer) -> None:
        """Runs the policy after the answer was given, and records what it would have done, then what came since."""
        recorded = placement
        try:
            reply = await self._reply(asked, time.monotonic() + COMPARISON_S)
            recorded = self._record_reply(asked, placement, answer, reply)
        finally:
            for later, status in self._held_back.pop(id(placement.query), ()):
                self._log_outcome(replace(later, propensity=recorded.propensity), status)

    def _log_outcome(self, placement: PlacedRequest, status: str) -> None:
        """Logs what became of a request, after its decision: else the earlier row would replace the later one."""
        held_back = self._held_back.get(id(placement.query))
        if held_back is None:
            self.log.request(request_row(placement, status, self._policy.site))
        else:
            held_back.append((placement, status))

    async def _reply(self, asked: OpenQuestion, deadline_s: float) -> Reply:
        """The policy's reply, if it comes in time."""
        begun_s, worker = time.monotonic(), self.slot.worker
        if worker.stalled(self.config.deadline_s):
            return Reply(reason=BUSY)
        try:
            decision = await worker.run(asked.question, deadline_s - begun_s)
        except TimeoutError:
            return Reply(reason=SLOW)
        except Exception as error:  # whatever the policy's libraries raise: the show goes on
            self._say_error("the policy failed, the fallback answers", error)
            return Reply(reason=RAISED)
        took_s = time.monotonic() - begun_s
        self.metrics.decision_s.observe(took_s)
        self.metrics.unknown_labels.inc(decision.num_unknown)
        self.metrics.out_of_distribution.inc(decision.num_out_of_range > 0)
        asked.policy.watch.decided(decision.unlike)
        if asked.policy is self._policy:
            self._say_alarms(frozenset(self._policy.watch.alarms()))
        position = self._position(asked.policy, decision, asked.view.names)
        self.metrics.unknown_nodes.inc(int((position < 0).sum()))
        choice = policy_choice(decision, position, asked.view)
        if choice.best == NO_NODE:
            return Reply(None, decision, UNABLE, took_s)
        return Reply(choice, decision, "", took_s)

    def _position(self, policy: ServedPolicy, decision: Decision, names: tuple[str, ...]) -> np.ndarray:
        """[n] where each candidate stands among the nodes of a policy's decision; -1 for strangers."""
        nodes, place, known = self._positions
        if nodes is not decision.nodes:
            place, known = by_name(decision), Remembered()
            machines = policy.node_of_machine
            place |= {
                name: place[node] for name, node in machines.items() if name not in place and node in place
            }
            self._positions = decision.nodes, place, known
        position = known.get(names)
        if position is None:
            position = np.array([place.get(name, -1) for name in names], int)
            known.keep(names, position, len(names))
        return position

    def _turn(self) -> float:
        """What is done before every question; returns the clock."""
        if self.slot.policy is not self._policy:
            self._policy, self._alarmed = self.slot.policy, frozenset()
            self.cluster.use(self._policy)
        return self.expire()

    def _place(self, query: PlacementQuery, answer: Answer, now_s: float) -> PlacedRequest:
        self.metrics.decisions.labels(answer.arm).inc()
        placement = self.cluster.placement(query, answer.view, answer.node or "", now_s)
        num_forgotten, num_stripped = self.cluster.place(placement)
        self.metrics.forgotten.labels("request").inc(num_forgotten)
        self.metrics.forgotten.labels("candidates").inc(num_stripped)
        return placement

    def _record_reply(
        self, asked: OpenQuestion, placement: PlacedRequest, answer: Answer, reply: Reply
    ) -> PlacedRequest:
        """Writes a decision down, with what the policy and the fallback would have named; it, with its propensity."""
        names, choice, fallback = answer.view.names, reply.choice, asked.fallback
        if choice is not None and fallback.best != NO_NODE:
            self.metrics.compared.inc()
            self.metrics.disagreements.inc(choice.best != fallback.best)
        weight = propensity(
            names.index(placement.offered),
            choice,
            fallback,
            canary=self.config.share,
            explore=self.config.explore,
            num_feasible=len(placement.query.names),
        )
        return self._record(
            placement,
            answer,
            weight,
            reply,
            asked.policy,
            policy_node=None if choice is None else names[choice.best],
            fallback_node=None if fallback.best == NO_NODE else names[fallback.best],
        )

    def _record(
        self,
        placement: PlacedRequest,
        answer: Answer,
        weight: float | None,
        reply: Reply | None = None,
        policy: ServedPolicy | None = None,
        **nodes: str | None,
    ) -> PlacedRequest:
        """Writes a decision down, by the policy in use where none is given; it, with its propensity."""
        placement, policy = self.cluster.weigh(placement, weight), policy or self._policy
        status = WAITING if self.cluster.hears_events else UNKNOWN
        self.log.request(request_row(placement, status, policy.site))
        reply = reply or Reply()
        decision = reply.decision
        self.log.decision(
            decision_row(
                placement, arm=answer.arm, reason=answer.reason or reply.reason or None,
                num_candidates=len(answer.view.names), took_s=reply.took_s, bundle=policy.content_hash,
                num_unknown_labels=None if decision is None else decision.num_unknown,
                num_out_of_range=None if decision is None else decision.num_out_of_range, **nodes,
            )
        )  # fmt: skip
        return placement

    def _alarm_level(self, kind: str) -> float:
        return self._policy.watch.levels()[kind]

    def _say_error(self, what: str, error: Exception) -> None:
        """Says that something failed, by the kind of error: its text may differ with every question."""
        kind = type(error).__name__
        self._errors.write(f"{what}: {kind}", f"{what}: {kind}: {error}"[:500])

    def _say_alarms(self, sentences: frozenset[str]) -> None:
        """Says what has become an alarm; one that stands is said once, and again when it had cleared."""
        for sentence in sorted(sentences - self._alarmed):
            self._alarms.write(sentence, f"alarm: {sentence}")
        self._alarmed = sentences

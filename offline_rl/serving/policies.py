"""The policy that serves, and how it is replaced while it does."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logs_schema.errors import ProductError, SchedtwinError
from offline_rl.assignment.assigner import Assigner, load_assigner
from offline_rl.bundle import ASSIGNMENT_KIND, KIND, kind_of
from offline_rl.contract import RULES
from offline_rl.runner import (
    Decision,
    ExportedPolicy,
    Ledger,
    Node,
    Policy,
    QueuePolicy,
    Request,
    load,
    load_network,
)
from offline_rl.runner.features import LOAD
from offline_rl.runner.loading import Backend, own_rule
from offline_rl.runner.table import NodeTable
from offline_rl.runner.watch import Watch
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import Notices
from offline_rl.serving.worker import Worker
from twin.problems import ORCHESTRATION, ORDERING, PLACEMENT

OLDEST = LOAD.index("oldest_wait_s")
Question = Callable[[], Decision]
"""A question with everything it needs: may be run later, and in another thread."""


class LedgerBooks(Ledger):
    """The runner's ledger, whose questions can be run later; `rule` reads the same ledger. One thread owns it."""

    def __init__(
        self,
        policy: Policy,
        nodes: Sequence[Node],
        clock_s: float | None = None,
        watch: Watch | None = None,
        rule: Policy | None = None,
    ) -> None:
        super().__init__(policy, nodes, clock_s, watch)
        self._rule = rule

    def question(self, request: Request, clock_s: float, nodes: tuple[Node, ...] = ()) -> Question:
        """What the policy would decide now; `nodes` where other facts than those of the ledger are to hold."""
        return self._question(self._policy, request, clock_s, nodes)

    def rule_question(self, request: Request, clock_s: float, nodes: tuple[Node, ...] = ()) -> Question:
        """The same of the rule that stands in for the policy; only where `ServedPolicy.has_rule`."""
        return self._question(self._rule or self._policy, request, clock_s, nodes)

    def _question(
        self, policy: Policy, request: Request, clock_s: float, nodes: tuple[Node, ...]
    ) -> Question:
        held, table = self.load(clock_s), self._as_it_is(request, clock_s)
        # Laying facts over those of training takes time: not here, but where the question is answered
        if nodes:
            return partial(self._decide_about, policy, nodes, table, held, request, clock_s)
        return partial(policy.decide_on, table, held, self._available.copy(), request, clock_s)

    def _decide_about(
        self,
        policy: Policy,
        nodes: tuple[Node, ...],
        known: NodeTable,
        held: np.ndarray,
        request: Request,
        clock_s: float,
    ) -> Decision:
        """Decides about nodes as a question describes them, which hold what is in this ledger."""
        table = self._policy.table_of(nodes)
        rows = np.array([known.row_of.get(name, -1) for name in table.names], int)
        nothing = np.zeros((len(held), 1))
        nothing[OLDEST] = -np.inf
        trained, is_known = table.facts.run_units, rows >= 0
        units, delays = trained.copy(), known.facts.delay_units
        units[:, is_known] = known.facts.run_units[:, rows[is_known]]
        if delays is not None:
            delays = np.where(is_known, delays[rows], 0.0)
        is_available = {node.name: node.available for node in nodes}
        available = np.array([is_available.get(name, False) for name in table.names], bool)
        return policy.decide_on(
            replace(
                table,
                facts=table.facts._replace(run_units=units, delay_units=delays),
                trained_units=trained,
            ),
            np.concatenate([held, nothing], axis=1)[:, rows],
            available,
            request,
            clock_s,
        )

    def _as_it_is(self, request: Request, clock_s: float) -> NodeTable:
        """The table for requests like one, which neither what the ledger learns later nor another question changes."""
        facts = self.table_for(request, clock_s).facts
        units = facts.run_units[self._policy.vocabulary.service_index(request)].copy()
        delays = None if facts.delay_units is None else facts.delay_units.copy()
        own = facts._replace(run_units=np.broadcast_to(units, facts.run_units.shape), delay_units=delays)
        return replace(self._table, facts=own)


@dataclass(frozen=True)
class ServedPolicy:
    """A policy that has proved itself against its golden decisions.

    Attributes:
        content_hash: Of its bundle.
        nodes: Nodes known from training, facts only.
        open_books: (all nodes, clock in seconds since 1970) -> an empty ledger of them.
        any_nodes: Whether it can also score nodes that were not in training.
        node_of_machine: Machine -> node, where the policy names classes of machines.
        site: Where a request counts as arrived that names no site.
        expected_run_s: Request -> run time to expect, by what it states, its labels and its agent.
        watch: Whether requests and run times are still those of training; its ledger updates it with runs.
        has_rule: Whether its ledger has questions for a rule (`rule_question`), which then is the fallback.
        queue: Of a queue's bundle: what orders it; it has no nodes then.
        assigner: Of the bundle of a scheduler of many requests at once; it has no nodes then.
    """

    content_hash: str
    nodes: tuple[Node, ...]
    open_books: Callable[[Sequence[Node], float], LedgerBooks]
    any_nodes: bool = False
    node_of_machine: Mapping[str, str] = field(default_factory=dict)
    site: str = "default"
    expected_run_s: Callable[[Request], float] = lambda request: (
        60.0 if request.requested_run_s is None else request.requested_run_s
    )
    watch: Watch = field(default_factory=lambda: Watch(None))
    has_rule: bool = False
    queue: QueuePolicy | None = None
    assigner: Assigner | None = None


class BundleSource(NamedTuple):
    """A bundle to load and how it is checked: the arguments of `load_policy`."""

    bundle: Path
    backend: Backend
    expect: str | None
    trust: Path | None
    rule: Path | None


def load_policy(
    bundle: Path,
    backend: Backend = "numpy",
    *,
    expect: str | None = None,
    trust: Path | None = None,
    rule: Path | None = None,
) -> ServedPolicy:
    """Loads a bundle for serving: verified, and replayed against its golden decisions.

    Args:
        bundle: Its folder.
        backend: What computes the network.
        expect: The content hash that it must have; None accepts any.
        trust: Public key that it must be signed with; None: any.
        rule: Bundle of a rule of the same training, to stand in where the policy does not answer; None: the rule that
            the bundle holds, heuristics where it holds none.

    Raises:
        ProductError: See `offline_rl.runner.load`; or the rule is none, or of another training.
    """
    source = BundleSource(bundle, backend, expect, trust, rule)
    return OF_KIND.get(kind_of(bundle) or KIND, _of_network)(source)


def _of_network(source: BundleSource) -> ServedPolicy:
    """A network's policy, by the problem of its contract."""
    network = load_network(source.bundle, source.backend, expect=source.expect, trust=source.trust)
    return OF_PROBLEM.get(network.contract.problem, _of_nodes)(network, source)


def _of_nodes(network: ExportedPolicy, source: BundleSource) -> ServedPolicy:
    """A policy that chooses among nodes; ProductError where the network is of another problem."""
    policy, rule = Policy(network), source.rule
    stand_in = (
        own_rule(policy, source.bundle)
        if rule is None
        else _rule_beside(policy, load(rule, "numpy", trust=source.trust), rule)
    )
    watch = Watch(policy.contract.alarm)
    return ServedPolicy(
        content_hash=policy.content_hash,
        nodes=facts_of(policy),
        open_books=partial(LedgerBooks, policy, watch=watch, rule=stand_in),
        any_nodes=policy.contract.network.any_choices,
        node_of_machine=policy.setting.node_of_machine,
        site=policy.setting.sites[0],
        expected_run_s=policy.expected_run_s,
        watch=watch,
        has_rule=stand_in is not None,
    )


def _of_queue(network: ExportedPolicy, source: BundleSource) -> ServedPolicy:
    """A queue's policy; it brings the rule that stands in for it along."""
    if source.rule is not None:
        raise ProductError(
            "a queue's bundle brings its rule along",
            where=str(source.rule),
            allowed="no other rule",
            advice="leave --rule out",
        )

    no_books = _no_books("the bundle orders a queue and places nothing", "use /order")
    return ServedPolicy(network.content_hash, (), no_books, queue=QueuePolicy(network))


def _of_assigner(source: BundleSource) -> ServedPolicy:
    """A scheduler of many requests at once."""
    if source.rule is not None:
        raise ProductError(
            "the bundle assigns many requests at once",
            where=str(source.rule),
            allowed="no rule beside: every answer begins with insertion",
        )

    no_books = _no_books("the bundle assigns many requests at once and places none alone", "use /assign")
    assigner = load_assigner(source.bundle, backend=source.backend, expect=source.expect, trust=source.trust)
    return ServedPolicy(assigner.content_hash, (), no_books, assigner=assigner)


def _no_books(why: str, advice: str) -> Callable[[Sequence[Node], float], LedgerBooks]:
    """Opens no books, but raises ProductError."""

    def refuse(_nodes: Sequence[Node], _clock_s: float) -> LedgerBooks:
        raise ProductError(why, advice=advice)

    return refuse


def _of_slots(network: ExportedPolicy, source: BundleSource) -> ServedPolicy:
    """ProductError: services are scaled and requests dispatched by slots in a controller, not by a server."""
    raise ProductError(
        f"this bundle is of the problem '{network.contract.problem}'",
        where=str(source.bundle),
        allowed="a bundle of placement, ordering or assignment",
        advice="schedtwin orchestrate runs this one",
    )


OF_KIND: Mapping[str, Callable[[BundleSource], ServedPolicy]] = {
    KIND: _of_network,
    ASSIGNMENT_KIND: _of_assigner,
}
"""Kind of bundle -> how it is loaded; kinds that are not served are refused as other than `KIND`."""
OF_PROBLEM: Mapping[str, Callable[[ExportedPolicy, BundleSource], ServedPolicy]] = {
    PLACEMENT: _of_nodes,
    ORDERING: _of_queue,
    ORCHESTRATION: _of_slots,
}
"""Problem of a network's contract -> how it is served; others are refused as other than placement."""


def _rule_beside(policy: Policy, rule: Policy, where: Path) -> Policy:
    """The rule, if it reads the ledger of the policy; ProductError if not."""
    if rule.contract.network.kind not in RULES:
        raise ProductError(
            "the bundle to fall back on holds no rule",
            where=str(where),
            allowed=", ".join(RULES),
            advice="export one: schedtwin export POLICY --policy expected_on_time_tuned --out RULE",
        )
    features = ("choice_features", "context_features")
    names = [
        [[one.name for one in getattr(each.contract, kind)] for kind in features] for each in (policy, rule)
    ]
    if rule.contract.setting != policy.contract.setting or names[0] != names[1]:
        raise ProductError(
            "the rule to fall back on is of another training than the policy",
            where=str(where),
            allowed="a rule exported from the same policy folder",
        )
    return rule


def facts_of(policy: Policy) -> tuple[Node, ...]:
    """The nodes of training in the contract; no limit known is None."""

    def known(amounts: tuple[float, ...]) -> list[float | None]:
        return [amount if math.isfinite(amount) else None for amount in amounts]

    facts = []
    for node in policy.setting.nodes:
        (cores, memory_gib, gpus), machine = known(node.capacity), known(node.machine)
        facts.append(
            Node(
                node.name, site=node.site, is_cloud=node.is_cloud, cpu_cores=cores, memory_gib=memory_gib, gpus=gpus,
                machine_cpu_cores=machine[0], machine_memory_gib=machine[1], machine_gpus=machine[2],
            )
        )  # fmt: skip
    return tuple(facts)


class PolicySlot:
    """Holds the policy in use; `reload` replaces it, or keeps it and gives the reason.

    Args:
        load: Loads, verifies and replays the bundle; called again at every reload.
        metrics: Where reloads are counted.

    Raises:
        SchedtwinError: The bundle cannot be used.
    """

    def __init__(self, load: Callable[[], ServedPolicy], metrics: Metrics) -> None:
        self._load, self._metrics, self._reloading = load, metrics, threading.Lock()
        self._hangs = Notices()
        self.policy, self.worker = load(), Worker(self._left_behind)
        self._metrics.bundle.labels(self.policy.content_hash).set(1)

    def reload(self) -> ServedPolicy:
        """Loads the bundle anew and puts it in use, with a fresh thread: one that hangs is left behind.

        Raises:
            SchedtwinError: The bundle is not fit for use; the policy in use stays.
        """
        with self._reloading:
            try:
                policy = self._load()
            except (SchedtwinError, OSError) as error:
                self._metrics.reloads.labels("refused").inc()
                if isinstance(error, SchedtwinError):
                    raise
                raise SchedtwinError("the bundle cannot be read", where=str(error)) from error
            older, idle = self.policy, self.worker
            self.policy, self.worker = policy, Worker(self._left_behind)
            idle.stop()
            self._metrics.reloads.labels("done").inc()
            self._metrics.bundle.labels(older.content_hash).set(0)
            self._metrics.bundle.labels(policy.content_hash).set(1)
            return policy

    def _left_behind(self, ran_s: float) -> None:
        self._metrics.policy_hangs.inc()
        self._hangs.write(
            "hang", f"the policy has not answered for {ran_s:.0f} s: it is asked in another thread"
        )

"""A placement policy that decides from plain descriptions: no arrays, no training stack.

    policy = load("bundle")
    policy.decide(nodes, request, clock_s).node
    policy.explain(nodes, request, clock_s).out_of_range

Legal is what is known to the policy, available, a candidate of the request, and large enough for it; where nothing
is, nothing is decided (in training every available node would then be legal, so that a decision exists).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ProductError, first
from offline_rl.contract import FeatureFacts
from offline_rl.errors import PolicyInputError
from offline_rl.numpy_networks import MASKED_LOGIT
from offline_rl.runner import features, reading, table
from offline_rl.runner.descriptions import (
    Answer,
    Decision,
    Explanation,
    Held,
    Node,
    OutOfRange,
    Request,
    described,
    refuse_other_types,
)
from offline_rl.runner.form import refuse_other_problem
from offline_rl.runner.ledger import Ledger
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.setting import RESOURCES, PlacementSetting, parse_setting

RANGE_SLACK = 1e-5
"""A feature may leave the range seen in training by so much, for rounding."""


# What a table depends on
_FACTS = attrgetter("name", "site", "is_cloud", *RESOURCES, *(f"machine_{name}" for name in RESOURCES))


class DecisionArrays(NamedTuple):
    """One decision as arrays; the rows are those of the node table."""

    choices: np.ndarray  # [rows, F] float32
    context: np.ndarray  # [R] float32
    legal: np.ndarray  # [rows] bool
    candidate: np.ndarray  # [rows] bool: the request may run there by its candidate list
    large_enough: np.ndarray  # [rows] bool
    # [rows, F] float32: the choices without what the ledger has learned; ranges are about these
    as_trained: np.ndarray


@dataclass(frozen=True)
class Ranges:
    """Ranges seen in training, [features] each; infinite where not known."""

    low: np.ndarray
    high: np.ndarray

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Which values [..., features] are outside."""
        found = values < self.low
        found |= values > self.high
        return found

    def count(self, values: np.ndarray, rows: np.ndarray | None) -> int:
        """How many values [..., features] are outside, in the chosen rows [...] if any are given."""
        outside = self.outside(values)
        num_outside = int(np.count_nonzero(outside))
        return num_outside if rows is None or not num_outside else int(np.count_nonzero(outside[rows]))


PROBLEM = "placement"


class Policy:
    """A placement policy of a bundle; safe to share between threads.

    Args:
        exported: The bundle's network.

    Raises:
        ProductError: The bundle decides something else, or by features unknown to this runner.
    """

    def __init__(self, exported: ExportedPolicy) -> None:
        contract = exported.contract
        refuse_other_problem(contract, PROBLEM)
        self.exported, self.contract = exported, contract
        self.setting: PlacementSetting = parse_setting(contract.setting)
        self.vocabulary = table.vocabulary_of(self.setting)
        _refuse_other_features(contract.choice_features, features.NODE_FEATURES)
        _refuse_other_features(contract.context_features, table.request_feature_names(self.vocabulary))
        if tuple(node.name for node in self.setting.nodes) != contract.choices:
            raise ProductError("the contract's nodes are not its choices", advice="export the policy again")
        self._of_nodes, self._of_request = (
            _ranges(contract.choice_features),
            _ranges(contract.context_features),
        )
        self._last: tuple[tuple, table.NodeTable] | None = None

    @property
    def content_hash(self) -> str:
        """Content hash of the bundle."""
        return self.exported.content_hash

    def decide(
        self, nodes: Sequence[Node | Mapping[str, Any]], request: Request | Mapping[str, Any], clock_s: float
    ) -> Decision:
        """The node that a request should be offered to.

        Args:
            nodes: All nodes and what they hold; names unknown to the policy are never chosen.
            request: The request in hand.
            clock_s: Now, seconds since 1970.

        Returns:
            The decision; its `node` is None where no node may take the request.

        Raises:
            PolicyInputError: A description is not one, or holds impossible numbers, or larger ones than can be decided
                by.
        """
        return self._asked(self.decide_on, nodes, request, clock_s)

    def explain(
        self, nodes: Sequence[Node | Mapping[str, Any]], request: Request | Mapping[str, Any], clock_s: float
    ) -> Explanation:
        """The decision and what it rests on; arguments and errors as for `decide`."""
        return self._asked(self.explain_on, nodes, request, clock_s)

    def _asked(self, ask: Callable[..., Answer], nodes: Any, request: Any, clock_s: float) -> Answer:
        try:
            known, load, available = self.read(nodes, clock_s)
            return ask(known, load, available, described(Request, request), clock_s)
        except (AttributeError, TypeError):
            refuse_other_types(nodes, request, clock_s)
            raise

    def ledger(self, nodes: Sequence[Node | Mapping[str, Any]], clock_s: float | None = None) -> Ledger:
        """Books of what the nodes hold, kept up to date by events: decides faster than from descriptions.

        Args:
            nodes: All nodes, with what they hold at first.
            clock_s: When that was; not needed for nodes that hold nothing.
        """
        return Ledger(self, [described(Node, node) for node in nodes], clock_s)

    def table_of(self, nodes: Sequence[Node]) -> table.NodeTable:
        """The table of some nodes; the last one is remembered, as nodes seldom change."""
        facts = tuple(map(_FACTS, nodes))
        last = self._last
        if last is None or last[0] != facts:
            last = self._last = facts, table.node_table(nodes, self.contract, self.setting)
        return last[1]

    def see(
        self,
        known: table.NodeTable,
        load: np.ndarray,
        available: np.ndarray,
        request: Request,
        clock_s: float,
    ) -> DecisionArrays:
        """The input of the network.

        Args:
            known: The nodes.
            load: [load rows, rows] what they hold (see `features.LOAD`).
            available: [rows] bool.
            request: The request in hand.
            clock_s: Now.

        Returns:
            Features and legality.

        Raises:
            PolicyInputError: Impossible numbers.
        """
        numbers = reading.request_numbers(request, clock_s, known, self.setting, self.vocabulary)
        bound = not self.contract.network.any_choices
        listed = request.candidates
        if listed is None and bound and request.queue is not None:
            of_queue = self.setting.nodes_of_queue.get(request.queue)
            listed = None if of_queue is None else sorted(of_queue)
        candidate, shown = reading.candidates_of(listed, known, self.setting, bound=bound)
        large_enough = features.fits(known.facts, numbers)
        choices = features.observe_nodes(known.facts, load, numbers, shown & large_enough)
        context = features.observe_request(
            numbers,
            self.vocabulary.num_features,
            self.setting.time_unit_s,
            knows_week=self.setting.knows_week,
        )
        legal = candidate & large_enough & available & known.choosable
        judged = features.as_trained(choices, known.facts, numbers, known.trained_units)
        return DecisionArrays(choices, context, legal, candidate, large_enough, judged)

    def decide_on(
        self,
        known: table.NodeTable,
        load: np.ndarray,
        available: np.ndarray,
        request: Request,
        clock_s: float,
    ) -> Decision:
        """`decide` from a table and its load."""
        return self._decided(known, self.see(known, load, available, request, clock_s), request)

    def explain_on(
        self,
        known: table.NodeTable,
        load: np.ndarray,
        available: np.ndarray,
        request: Request,
        clock_s: float,
    ) -> Explanation:
        """`explain` from a table and its load."""
        seen = self.see(known, load, available, request, clock_s)
        of_nodes = [one.name for one in self.contract.choice_features]
        of_request = [one.name for one in self.contract.context_features]
        shown = {
            name: dict(zip(of_nodes, seen.choices[known.row_of[name]].tolist(), strict=True))
            for name in known.described
            if name in known.row_of
        }
        return Explanation(
            decision=self._decided(known, seen, request),
            features=shown,
            request=dict(zip(of_request, seen.context.tolist(), strict=True)),
            out_of_range=tuple(self._out_of_range(known, seen)),
            unknown=table.unknown_labels(request, self.vocabulary),
            illegal=_why_illegal(known, seen, available),
        )

    def read(
        self, nodes: Sequence[Node | Mapping[str, Any]], clock_s: float
    ) -> tuple[table.NodeTable, np.ndarray, np.ndarray]:
        """Described nodes as a table, its load and which of its rows are available: what `see` takes."""
        if not math.isfinite(clock_s):
            raise reading.impossible("clock_s", clock_s, "seconds since 1970")
        ready = [described(Node, node) for node in nodes]
        known = self.table_of(ready)
        return known, *reading.load_of(ready, known, self.setting, clock_s, self.expected_run_s)

    def expected_run_s(self, asked: Request | Held) -> float:
        """The run time to expect of a request anywhere: what it states, or what is usual of its labels, by the habits
        of its agent; of what is held, what was expected of it, if that is known."""
        return reading.expected_run_s(self.setting, self.vocabulary, asked)

    def _decided(self, known: table.NodeTable, seen: DecisionArrays, request: Request) -> Decision:
        chosen = None
        if np.count_nonzero(seen.legal):
            scores = self.exported.network(seen.choices[None], seen.context[None], seen.legal[None])[0]
            best = int(scores.argmax())  # of a NaN, if there is one
            if not math.isfinite(scores[best]):
                raise self._too_large(known, seen)
            chosen = known.names[best]
        else:
            scores = np.full(len(known.names), MASKED_LOGIT, np.float32)
        num_of_request = self._of_request.count(seen.context, None)
        num_outside = num_of_request + self._of_nodes.count(seen.as_trained, seen.legal)
        legal = seen.legal
        if not known.as_described:
            legal = np.append(legal, False)[known.rows]  # row -1: not in the table
            scores = np.append(scores, np.float32(MASKED_LOGIT))[known.rows]
        num_unknown = len(table.unknown_labels(request, self.vocabulary))
        unlike = num_of_request + num_unknown > 0
        return Decision(chosen, known.described, scores, legal, num_outside, num_unknown, unlike)

    def _too_large(self, known: table.NodeTable, seen: DecisionArrays) -> PolicyInputError:
        """The error for numbers, of a node or of the request, of which the network makes none."""
        places = np.argwhere(~np.isfinite(seen.choices)).tolist()
        shown = [
            f"{known.names[row]}: {self.contract.choice_features[column].name}" for row, column in places
        ]
        return PolicyInputError(
            "an amount, or a time, is too large to decide by",
            where=first(shown) if shown else "the request, or what nodes hold",
            allowed="numbers below 1e30",
        )

    def _out_of_range(self, known: table.NodeTable, seen: DecisionArrays) -> list[OutOfRange]:
        found = []
        for row, column in np.argwhere(
            self._of_nodes.outside(seen.as_trained) & seen.legal[:, None]
        ).tolist():
            facts = self.contract.choice_features[column]
            found.append(_out_of_range(facts, known.names[row], float(seen.as_trained[row, column])))
        for (column,) in np.argwhere(self._of_request.outside(seen.context)).tolist():
            found.append(
                _out_of_range(self.contract.context_features[column], None, float(seen.context[column]))
            )
        return found


def _why_illegal(known: table.NodeTable, seen: DecisionArrays, available: np.ndarray) -> dict[str, str]:
    reasons = dict(known.refused)
    for name in known.described:
        row = known.row_of.get(name, -1)
        if name in reasons or seen.legal[row]:
            continue
        if not seen.candidate[row]:
            reasons[name] = "not among the request's candidates, or the nodes of its queue"
        elif not seen.large_enough[row]:
            reasons[name] = "too small: its capacity, or that of its largest machine"
        elif not available[row]:
            reasons[name] = "not available"
    return reasons


def _out_of_range(facts: FeatureFacts, node: str | None, value: float) -> OutOfRange:
    low, high = (np.nan if bound is None else bound for bound in (facts.low, facts.high))
    return OutOfRange(facts.name, node, value, low, high)


def _ranges(facts: Sequence[FeatureFacts]) -> Ranges:
    low = np.array([-np.inf if one.low is None else one.low - RANGE_SLACK for one in facts], np.float32)
    high = np.array([np.inf if one.high is None else one.high + RANGE_SLACK for one in facts], np.float32)
    return Ranges(low, high)


def _refuse_other_features(found: Sequence[FeatureFacts], wanted: Sequence[str]) -> None:
    names = tuple(one.name for one in found)
    if names == tuple(wanted):
        return
    differing = [f"{a} for {b}" for a, b in zip(names, wanted, strict=False) if a != b]
    raise ProductError(
        "this runner cannot compute the policy's features",
        where=differing[0] if differing else f"{len(names)} features",
        allowed=f"{len(wanted)} features as this runner names them",
        advice="use the runner that came with the bundle, or decide from arrays (offline_rl.runner.load_network)",
    )

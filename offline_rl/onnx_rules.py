"""A rule of `offline_rl.numpy_rules` as ONNX operators; in double precision, where ONNX lacks expm1 and log1p."""

from typing import TYPE_CHECKING

import numpy as np

from offline_rl.contract import LEAST_EXPECTED_RESPONSE, PolicyContract
from offline_rl.numpy_rules import LEAST_ACCEPTANCE, TINY, rows_of, rule_of

if TYPE_CHECKING:
    from offline_rl.onnx_graph import Graph


class _Terms:
    """What a rule's formula is written with: features as durations and shares, [batch, A] or [batch, 1], double."""

    def __init__(self, graph: "Graph", contract: PolicyContract) -> None:
        self.graph, self.rule, self.rows = graph, rule_of(contract), rows_of(contract)
        double = graph.onnx.TensorProto.DOUBLE
        self.choices = graph.add("Cast", "choices", to=double)
        self.context = graph.add("Unsqueeze", graph.add("Cast", "context", to=double), graph.integers(1))

    def of_choice(self, name: str) -> str:
        return self._row(self.choices, self.rows.of_choice[name])

    def of_context(self, name: str) -> str:
        return self._row(self.context, self.rows.of_context[name])

    def _row(self, values: str, row: int) -> str:
        one = self.graph.add("Gather", values, self.graph.integers(row), axis=2)
        return self.graph.add("Squeeze", one, self.graph.integers(2))

    def number(self, name: str, index: int | None = None) -> str:
        value = np.asarray(self.graph.arrays[f"{self.rule}/{name}"], np.float32)
        return self.value(float(value if index is None else value[index]))

    def value(self, value: float) -> str:
        return self.graph.constant(f"value_{value!r}", np.array(value, np.float64))

    def above_half(self, flag: str) -> str:
        return self.graph.add("Greater", flag, self.value(0.5))

    def expm1(self, values: str) -> str:
        return self.graph.add("Sub", self.graph.add("Exp", values), self.value(1.0))

    def log1p(self, values: str) -> str:
        return self.graph.add("Log", self.graph.add("Add", values, self.value(1.0)))

    def duration(self, feature: str) -> str:
        return self.graph.add("Max", self.expm1(feature), self.value(0.0))

    def at_least(self, values: str, least: float) -> str:
        return self.graph.add("Max", values, self.value(least))


def rule_scores(graph: "Graph", contract: PolicyContract) -> str:
    """The scores [batch, A] float32 of the contract's rule over `choices` and `context`."""
    terms, add = _Terms(graph, contract), graph.add
    delay, run = _delay(terms), terms.duration(terms.of_choice("usual_run"))
    response = add("Add", delay, run)
    if terms.rule == LEAST_EXPECTED_RESPONSE:
        accepted = add("Log", terms.at_least(terms.of_choice("acceptance"), LEAST_ACCEPTANCE))
        scores = add("Sub", accepted, add("Log", terms.at_least(response, TINY)))
    else:
        core_time = terms.log1p(terms.duration(terms.of_choice("core_time")))
        crowding = add("Sub", terms.value(2.0), terms.of_choice("free_cpu_cores"))
        cost = add("Mul", add("Mul", terms.number("price"), core_time), crowding)
        haste = add("Mul", terms.number("haste"), terms.log1p(response))
        worth = add("Mul", terms.of_choice("acceptance"), _on_time(terms, delay, run))
        scores = add("Sub", add("Sub", worth, cost), haste)
    return add("Cast", scores, to=graph.onnx.TensorProto.FLOAT)


def _delay(terms: _Terms) -> str:
    add = terms.graph.add
    free = add("Sub", terms.of_choice("free_cpu_cores"), terms.expm1(terms.of_choice("waiting_share")))
    needed = add("Sub", terms.of_choice("needed_share"), terms.value(1e-3))
    backlog = terms.duration(terms.of_choice("backlog"))
    queue = add("Where", add("Less", free, needed), backlog, terms.value(0.0))
    mib = terms.duration(terms.of_context("input"))
    home, cloud = (
        terms.above_half(terms.of_choice("same_site")),
        terms.above_half(terms.of_choice("is_cloud")),
    )
    at_home, elsewhere, in_cloud = (
        add("Add", terms.number("latency", kind), add("Mul", terms.number("per_mib", kind), mib))
        for kind in range(3)
    )
    transfer = add("Where", home, at_home, add("Where", cloud, in_cloud, elsewhere))
    return add("Max", add("Mul", terms.number("wait_scale"), queue), transfer)


def _on_time(terms: _Terms, delay: str, run: str) -> str:
    """Probability of ending within the deadline; 1 without one. The error function is there in single precision."""
    add, kinds = terms.graph.add, terms.graph.onnx.TensorProto
    left = add("Sub", terms.duration(terms.of_context("deadline")), delay)
    share = add("Log", add("Div", terms.at_least(left, TINY), terms.at_least(run, TINY)))
    scale = add("Mul", terms.number("spread"), terms.value(float(np.sqrt(2.0))))
    halves = add("Erf", add("Cast", add("Div", share, scale), to=kinds.FLOAT))
    halves = add("Mul", add("Cast", halves, to=kinds.DOUBLE), terms.value(0.5))
    normal = add("Add", halves, terms.value(0.5))
    in_time = add("Where", add("Greater", left, terms.value(0.0)), normal, terms.value(0.0))
    return add("Where", terms.above_half(terms.of_context("has_deadline")), in_time, terms.value(1.0))

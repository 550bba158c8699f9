"""A rule of `offline_rl.numpy_rules` as ONNX operators; in double precision, where ONNX lacks expm1 and log1p."""

from typing import TYPE_CHECKING

import numpy as np

from offline_rl.contract import LEAST_EXPECTED_RESPONSE, ON_TIME_BY_REPLICAS, PolicyContract
from offline_rl.numpy_rules import BEHIND_SCALE, CROWDING, LEAST_ACCEPTANCE, PRICE, TOLL, rows_of, rule_of
from offline_rl.replica_scores import TINY

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
    if terms.rule == ON_TIME_BY_REPLICAS:
        return add("Cast", _by_replicas(terms), to=graph.onnx.TensorProto.FLOAT)
    delay, run = _delay(terms), _run(terms)
    response = add("Add", delay, run)
    if terms.rule == LEAST_EXPECTED_RESPONSE:
        accepted = add("Log", terms.at_least(terms.of_choice("acceptance"), LEAST_ACCEPTANCE))
        worth = add("Sub", accepted, add("Log", terms.at_least(response, TINY)))
    else:
        left = add("Sub", terms.duration(terms.of_context("deadline")), delay)
        worth = add("Mul", terms.of_choice("acceptance"), _on_time(terms, left, run))
    scores = _less_price(terms, _less_toll(terms, worth))
    if terms.rule != LEAST_EXPECTED_RESPONSE:
        scores = _less_haste(terms, scores, response)
    return add("Cast", scores, to=graph.onnx.TensorProto.FLOAT)


def _less_toll(terms: _Terms, worth: str) -> str:
    """What an offer is worth, less what it costs those that run there."""
    add = terms.graph.add
    alone = terms.log1p(terms.duration(terms.of_choice("usual_run")))
    beside = add("Mul", terms.of_choice("num_running"), alone)
    return add("Sub", worth, add("Mul", terms.number(TOLL), beside))


def _less_price(terms: _Terms, worth: str) -> str:
    """What an offer is worth, less the price of its cores."""
    add = terms.graph.add
    core_time = terms.log1p(terms.duration(terms.of_choice("core_time")))
    crowding = add("Sub", terms.value(2.0), terms.of_choice("free_cpu_cores"))
    return add("Sub", worth, add("Mul", add("Mul", terms.number(PRICE), core_time), crowding))


def _less_haste(terms: _Terms, worth: str, response: str) -> str:
    """What an offer is worth, less what a later end costs."""
    haste = terms.graph.add("Mul", terms.number("haste"), terms.log1p(response))
    return terms.graph.add("Sub", worth, haste)


def _by_replicas(terms: _Terms) -> str:
    add = terms.graph.add
    run, replicas, same = (
        terms.duration(terms.of_choice(name)) for name in ("usual_run", "replicas", "same_service")
    )
    ahead = terms.at_least(add("Add", add("Sub", same, replicas), terms.value(1.0)), 0.0)
    for_replica = add("Div", add("Mul", run, ahead), terms.at_least(replicas, 1e-3))
    waiting = terms.duration(terms.of_choice("waiting_share"))
    backlog = terms.duration(terms.of_choice("backlog"))
    queue = add("Where", _is_short(terms, waiting), backlog, terms.value(0.0))
    wait = add("Max", queue, for_replica)
    latency = _of_kind(terms, *(terms.number("latency", kind) for kind in range(3)))
    left = add(
        "Sub", terms.duration(terms.of_context("deadline")), terms.duration(terms.of_context("waited"))
    )
    left = add("Sub", add("Sub", left, wait), add("Mul", terms.value(2.0), latency))
    response = add("Add", add("Add", wait, run), latency)
    return _less_haste(terms, _less_price(terms, _on_time(terms, left, run)), response)


def _delay(terms: _Terms) -> str:
    add = terms.graph.add
    mib = terms.duration(terms.of_context("input"))
    transfer = _of_kind(
        terms,
        *(
            add("Add", terms.number("latency", kind), add("Mul", terms.number("per_mib", kind), mib))
            for kind in range(3)
        ),
    )
    backlog = terms.duration(terms.of_choice("backlog"))
    short = _is_short(terms, terms.expm1(terms.of_choice("waiting_share")))
    asks_gpu = add("Greater", terms.of_context("asked_gpus"), terms.value(0.0))
    no_gpu = add("And", asks_gpu, add("Less", terms.of_choice("free_gpus"), terms.value(1e-3)))
    is_behind = add("Or", no_gpu, add("Greater", terms.of_choice("num_waiting"), terms.value(0.0)))
    free_cores_scale = add("Where", is_behind, terms.number(BEHIND_SCALE), terms.value(0.0))
    scale = add("Where", short, terms.number("wait_scale"), free_cores_scale)
    return add("Max", add("Mul", scale, backlog), transfer)


def _run(terms: _Terms) -> str:
    """How long the request should run, beside those that run there now."""
    add = terms.graph.add
    by_count, by_load, usual = (terms.number(CROWDING, index) for index in range(3))
    taken = add("Sub", terms.value(1.0), _free_capacity(terms, terms.expm1(terms.of_choice("waiting_share"))))
    load = add("Add", taken, terms.of_choice("needed_share"))
    longer = add("Mul", by_load, add("Log", terms.at_least(load, 1.0)))
    longer = add("Sub", add("Add", longer, add("Mul", by_count, terms.of_choice("num_running"))), usual)
    return add("Mul", terms.duration(terms.of_choice("usual_run")), add("Exp", longer))


def _is_short(terms: _Terms, waiting: str) -> str:
    """Whether cores for the request are lacking, beside the share that `waiting` requests need."""
    add = terms.graph.add
    needed = add("Sub", terms.of_choice("needed_share"), terms.value(1e-3))
    return add("Less", _free_capacity(terms, waiting), needed)


def _free_capacity(terms: _Terms, waiting: str) -> str:
    """The share of the cores that is free beside the share that `waiting` requests need."""
    return terms.graph.add("Sub", terms.of_choice("free_cpu_cores"), waiting)


def _of_kind(terms: _Terms, at_home: str, elsewhere: str, in_cloud: str) -> str:
    """What holds at home, at another site, in the cloud."""
    add = terms.graph.add
    home, cloud = (terms.above_half(terms.of_choice(name)) for name in ("same_site", "is_cloud"))
    return add("Where", home, at_home, add("Where", cloud, in_cloud, elsewhere))


def _on_time(terms: _Terms, left: str, run: str) -> str:
    """Probability of ending in the time left; 1 without a deadline. The error function is in single precision."""
    add, kinds = terms.graph.add, terms.graph.onnx.TensorProto
    share = add("Log", add("Div", terms.at_least(left, TINY), terms.at_least(run, TINY)))
    scale = add("Mul", terms.number("spread"), terms.value(float(np.sqrt(2.0))))
    halves = add("Erf", add("Cast", add("Div", share, scale), to=kinds.FLOAT))
    halves = add("Mul", add("Cast", halves, to=kinds.DOUBLE), terms.value(0.5))
    normal = add("Add", halves, terms.value(0.5))
    in_time = add("Where", add("Greater", left, terms.value(0.0)), normal, terms.value(0.0))
    return add("Where", terms.above_half(terms.of_context("has_deadline")), in_time, terms.value(1.0))

"""Rules from logs: closed forms, a plain loop, what the log tells them, and what they do where it tells little."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from offline_rl.contract import EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE, RULES, SHARPNESS, NetworkFacts
from offline_rl.distributions import greedy
from offline_rl.export import export_policy, network_facts
from offline_rl.networks import example_in
from offline_rl.placement_contract import placement_contract
from offline_rl.rules import fit_rules, numbers_of, rule_actor, rule_params
from offline_rl.rules.actor import RUN_TIME_SPREAD
from offline_rl.rules.in_twin import rules_in_words
from offline_rl.rules.residual import on_rule, residual
from offline_rl.runner import load_network
from offline_rl.scorer import ScorerConfig
from tests.offline_rl.bundles import made_system
from twin.placement.features import NODE_FEATURES, NUMERIC_REQUEST_FEATURES
from twin.placement.history import Offers as Labelled
from twin.placement.history import labelled_offers, replay_log
from twin.placement.outcome_model import Observed
from twin.placement.types import Observation

NUMBERS = {
    "spread": 0.3, "latency": [0.1, 0.2, 0.4], "per_mib": [0.0, 0.01, 0.05], "wait_scale": 1.5, "price": 0.05,
    "haste": 0.001, "crowding": [0.5, 0.3, 0.0], "behind_scale": 0.75, "toll": 0.03,
}  # fmt: skip
NODES = (
    # site, cloud, free share, waiting share, share needed, backlog, run, acceptance; durations in time units
    {
        "same_site": 1.0,
        "free": 0.0,
        "waiting": 0.5,
        "needed": 0.5,
        "backlog": 4.0,
        "run": 3.0,
        "acceptance": 0.9,
    },
    {
        "same_site": 0.0,
        "free": 0.5,
        "waiting": 0.0,
        "needed": 0.25,
        "backlog": 2.0,
        "run": 6.0,
        "acceptance": 0.8,
    },
    {
        "is_cloud": 1.0,
        "free": 1.0,
        "waiting": 0.0,
        "needed": 0.1,
        "backlog": 0.0,
        "run": 2.0,
        "acceptance": 0.6,
    },
)
INPUT_MIB, DEADLINE = 20.0, 9.0


def observation_of(
    nodes: tuple[dict[str, float], ...], deadline: float | None, gpus: float = 0.0
) -> Observation:
    """Features of offers given in plain quantities, one seat and no streams."""
    rows = {feature.name: np.zeros(len(nodes), np.float32) for feature in NODE_FEATURES}
    for at, node in enumerate(nodes):
        for name in ("same_site", "is_cloud", "acceptance"):
            rows[name][at] = node.get(name, 0.0)
        rows["free_cpu_cores"][at], rows["needed_share"][at] = node["free"], node["needed"]
        rows["num_running"][at] = np.log1p(node.get("running", 0.0))
        rows["num_waiting"][at], rows["free_gpus"][at] = (
            np.log1p(node.get("queued", 0.0)),
            node.get("free_gpus", 0.0),
        )
        rows["waiting_share"][at], rows["backlog"][at] = np.log1p(node["waiting"]), np.log1p(node["backlog"])
        rows["usual_run"][at], rows["core_time"][at] = (
            np.log1p(node["run"]),
            np.log1p(node["run"] * node["needed"]),
        )
    asked = dict.fromkeys((feature.name for feature in NUMERIC_REQUEST_FEATURES), 0.0)
    asked |= {"input": math.log1p(INPUT_MIB), "asked_gpus": math.log1p(gpus)}
    if deadline is not None:
        asked |= {"deadline": math.log1p(deadline), "has_deadline": 1.0}
    return Observation(
        jnp.stack(list(rows.values()))[:, :, None], jnp.array(list(asked.values()), jnp.float32)[:, None]
    )


def scores_of(rule: str, observation: Observation, **numbers: object) -> np.ndarray:
    legal = jnp.ones(observation.node.shape[1:], bool)
    params = rule_params(rule, **{**NUMBERS, "crowding": [0.0] * 3, **numbers})
    return np.asarray(rule_actor(rule).logits(params, observation, legal))[:, 0]


def test_expected_on_time_by_hand() -> None:
    """The first node waits 1.5 x 4, the second sends 20 MiB at .01 after .2, the third 20 at .05 after .4."""
    normal, delays, found = NormalDist(), (6.0, 0.4, 1.4), []
    for node, delay in zip(NODES, delays, strict=True):
        on_time = normal.cdf(math.log((DEADLINE - delay) / node["run"]) / 0.3)
        busy = 1.0 - node["free"]
        cost = 0.05 * math.log1p(node["run"] * node["needed"]) * (1.0 + busy)
        found.append(node["acceptance"] * on_time - cost - 0.001 * math.log1p(delay + node["run"]))
    np.testing.assert_allclose(scores_of(EXPECTED_ON_TIME, observation_of(NODES, DEADLINE)), found, rtol=1e-5)


def test_least_expected_response_by_hand() -> None:
    own = np.array([-math.log(9.0 / 0.9), -math.log(6.4 / 0.8), -math.log(3.4 / 0.6)])
    later = np.array(
        [2.0 * math.log(2.5), 1.5 * math.log(2.5), math.log(1.2)]
    )  # (1 + busy) ln(1 + core-time)
    there = np.array([math.log(4.0) * math.log(4.0), 0.0, 0.0])  # three run on the first node
    seen = observation_of(({**NODES[0], "running": 3.0}, *NODES[1:]), DEADLINE)
    for price, toll in ((0.0, 0.0), (0.1, 0.0), (0.1, 0.2)):
        found = scores_of(LEAST_EXPECTED_RESPONSE, seen, price=price, toll=toll)
        np.testing.assert_allclose(found, own - price * later - toll * there, rtol=1e-5)


def test_a_crowd_slows_runs_by_hand() -> None:
    """Three requests run on the first node, a power of a half of four; its load is two, a power of one; usually two."""
    crowded = ({**NODES[0], "running": 3.0}, *NODES[1:])
    usual = {"crowding": [0.5, 1.0, math.log(2.0)]}
    runs = [3.0 * 2.0 * 2.0 / 2.0, 6.0 / 2.0, 2.0 / 2.0]
    responses = [(6.0 + runs[0]) / 0.9, (0.4 + runs[1]) / 0.8, (1.4 + runs[2]) / 0.6]
    found = scores_of(
        LEAST_EXPECTED_RESPONSE, observation_of(crowded, DEADLINE), price=0.0, toll=0.0, **usual
    )
    np.testing.assert_allclose(found, -np.log(responses), rtol=1e-5)
    on_time = NormalDist().cdf(math.log((DEADLINE - 6.0) / runs[0]) / 0.3)
    seen = observation_of(crowded, DEADLINE)
    worth = scores_of(EXPECTED_ON_TIME, seen, price=0.0, haste=0.0, toll=0.0, **usual)
    assert worth[0] == pytest.approx(0.9 * on_time, rel=1e-3)
    tolled = scores_of(EXPECTED_ON_TIME, seen, price=0.0, haste=0.0, toll=0.1, **usual)
    np.testing.assert_allclose(worth - tolled, [0.1 * math.log(4.0) * math.log(4.0), 0.0, 0.0], atol=1e-6)


def test_a_request_behind_others_waits_though_cores_are_free_by_hand() -> None:
    """One waits on the second node, so .75 x 2 pass there; with a GPU asked for, the free third has none and clears
    its backlog of 8 first; nobody goes first on the first, which is short of cores."""
    nodes = (NODES[0], {**NODES[1], "queued": 1.0, "free_gpus": 0.5}, {**NODES[2], "backlog": 8.0})
    for gpus, delays in ((0.0, (6.0, 1.5, 1.4)), (1.0, (6.0, 1.5, 6.0))):
        parts = zip(nodes, delays, strict=True)
        expected = [-math.log((delay + node["run"]) / node["acceptance"]) for node, delay in parts]
        found = scores_of(LEAST_EXPECTED_RESPONSE, observation_of(nodes, None, gpus), price=0.0, toll=0.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_is_late_already_or_has_no_deadline_goes_where_it_ends_soonest() -> None:
    """Of offers that are equally sure to be late, or cannot be late, the third of the nodes ends soonest."""
    alike = tuple({**node, "acceptance": 1.0} for node in NODES)
    for deadline in (0.05, None):
        found = scores_of(EXPECTED_ON_TIME, observation_of(alike, deadline), price=0.0)
        assert np.argmax(found) == 2
        assert len(set(found.tolist())) == 3
    sure = scores_of(EXPECTED_ON_TIME, observation_of(alike, None), price=0.0, haste=0.0)
    np.testing.assert_array_equal(sure, 1.0)


def test_a_price_moves_work_from_busy_and_slow_nodes() -> None:
    """The second node holds a core longer than the third; a high price decides by that alone."""
    seen = observation_of(NODES[1:], None)
    assert np.argmax(scores_of(EXPECTED_ON_TIME, seen, price=0.0)) == 0
    assert np.argmax(scores_of(EXPECTED_ON_TIME, seen, price=10.0)) == 1


def plain_choice(
    rule: str, numbers: dict, node: np.ndarray, request: np.ndarray, legal: np.ndarray
) -> tuple[int, float]:
    """The rule once more, one decision and one node after the other: the choice, and its lead over the next."""
    seen = {feature.name: row for feature, row in zip(NODE_FEATURES, node, strict=True)}
    asked = {feature.name: value for feature, value in zip(NUMERIC_REQUEST_FEATURES, request, strict=False)}
    normal, found = NormalDist(), []
    for at in np.flatnonzero(legal):
        one = {name: float(row[at]) for name, row in seen.items()}
        queue = 0.0
        if one["free_cpu_cores"] - math.expm1(one["waiting_share"]) < one["needed_share"] - 1e-3:
            queue = numbers["wait_scale"] * math.expm1(one["backlog"])
        elif one["num_waiting"] > 0.0 or (asked["asked_gpus"] > 0.0 and one["free_gpus"] < 1e-3):
            queue = numbers["behind_scale"] * math.expm1(one["backlog"])
        kind = 0 if one["same_site"] else 2 if one["is_cloud"] else 1
        delay = max(queue, numbers["latency"][kind] + numbers["per_mib"][kind] * math.expm1(asked["input"]))
        load = 1.0 - one["free_cpu_cores"] + one["needed_share"] + math.expm1(one["waiting_share"])
        by_count, by_load, usual = numbers["crowding"]
        longer = by_count * one["num_running"] + by_load * math.log(max(1.0, load)) - usual
        run = math.expm1(one["usual_run"]) * math.exp(longer)
        cost = numbers["price"] * one["core_time"] * (2.0 - one["free_cpu_cores"])
        cost += numbers["toll"] * one["num_running"] * one["usual_run"]
        if rule == LEAST_EXPECTED_RESPONSE:
            accepted = max(one["acceptance"], 1e-3)
            found.append((math.log(accepted) - math.log(max(delay + run, 1e-6)) - cost, at))
            continue
        on_time, left = 1.0, math.expm1(asked["deadline"]) - delay
        if asked["has_deadline"]:
            on_time = normal.cdf(math.log(left / run) / numbers["spread"]) if left > 0.0 else 0.0
        found.append((one["acceptance"] * on_time - cost - numbers["haste"] * math.log1p(delay + run), at))
    found.sort(key=lambda each: (-each[0], each[1]))
    lead = found[0][0] - found[1][0] if len(found) > 1 else math.inf
    return int(found[0][1]), lead


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("view", ["full", pytest.param("summary", marks=pytest.mark.slow)])
def test_replayed_logs_are_decided_as_by_a_plain_loop(rule: str, view: str) -> None:
    encoding, windows = made_system(num_steps=32, num_windows=2)
    encoding = replace(encoding, problem=replace(encoding.problem, view=view))
    history = replay_log(windows, encoding)
    actor = rule_actor(rule)
    params = rule_params(rule, **NUMBERS)
    decide = jax.jit(jax.vmap(lambda seen, legal: greedy(actor.logits(params, seen, legal))))
    action = np.asarray(decide(history.observation, history.legal))
    num_clear, chosen = 0, set()
    for step, window in np.ndindex(32, 2):
        node, request, legal = (
            np.asarray(leaf)[step, ..., 0, window] for leaf in (*history.observation, history.legal)
        )
        expected, lead = plain_choice(rule, NUMBERS, node, request, legal)
        if lead > 1e-5:
            assert action[step, 0, window] == expected
            num_clear += 1
            chosen.add(expected)
    assert num_clear > 32
    assert len(chosen) > 1


@pytest.mark.parametrize("rule", RULES)
def test_nodes_may_come_in_any_order_and_number(rule: str) -> None:
    seen = observation_of(NODES, DEADLINE)
    scores = scores_of(rule, seen)
    turned = Observation(seen.node[:, ::-1], seen.request)
    np.testing.assert_allclose(scores_of(rule, turned), scores[::-1], rtol=1e-6)
    fewer = Observation(seen.node[:, :2], seen.request)
    np.testing.assert_allclose(scores_of(rule, fewer), scores[:2], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_bundle_decides_as_the_rule(rule: str, tmp_path: Path) -> None:
    """Random golden observations and replayed ones, in NumPy and by ONNX Runtime."""
    encoding, windows = made_system(num_steps=32, num_windows=2)
    params = rule_params(rule, **NUMBERS)
    assert network_facts(params) == NetworkFacts(rule, ())
    contract = placement_contract(encoding, network_facts(params))
    history = replay_log(windows, encoding)
    flat = np.concatenate(
        [np.asarray(leaf)[..., 0, :].reshape(32, -1, 2) for leaf in history.observation], axis=1
    )
    observed = np.moveaxis(flat, 1, 2).reshape(64, -1)
    export_policy(params, tmp_path / "bundle", contract, observed=observed)
    for backend in ("numpy", "onnx"):  # loading replays every golden decision
        policy = load_network(tmp_path / "bundle", backend)
        assert policy.contract.network.any_choices
    facts = bundle_facts(tmp_path / "bundle")
    assert facts["numbers"]["per_mib"] == pytest.approx(NUMBERS["per_mib"])
    assert "0, 0.01, 0.05" in bundle_text(facts)
    assert "any number of them" in bundle_text(facts)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE])
def test_an_untrained_correction_changes_no_decision_and_a_trained_one_leaves_the_rules_numbers(
    rule: str,
) -> None:
    encoding, windows = made_system(num_steps=16, num_windows=2)
    history = replay_log(windows, encoding)
    network, below = residual(example_in(history), rule, ScorerConfig((8,))), rule_params(rule, **NUMBERS)
    params = on_rule(network.init(jax.random.key(0)), below)
    assert network_facts(params) == NetworkFacts("scorer", (8,), identity=True, pooled=False, corrects=rule)
    seen, legal = jax.tree.map(lambda leaf: leaf[0], (history.observation, history.legal))
    scores = rule_actor(rule).logits(below, seen, legal)
    logits = network.logits(params, seen, legal)
    np.testing.assert_allclose(
        np.where(legal, logits, 0.0), np.where(legal, SHARPNESS * scores, 0.0), rtol=1e-5
    )

    def worth(params: dict) -> jax.Array:
        return jnp.sum(jnp.where(legal, network.logits(params, seen, legal), 0.0) ** 2)

    gradient = jax.grad(worth)(params)["params"]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient[rule]))
    assert np.any(gradient["score"]["kernel"])


def labelled(
    num: int,
    *,
    kind: int,
    spread: float = 0.3,
    seed: int = 0,
    power: float = 0.0,
    busy_hours: float = 0.0,
    behind: float = 0.0,
) -> tuple[Labelled, object]:
    """Offers of one kind to free nodes whose answers follow the rule's own model; in busy hours more requests run, and
    requests are longer by themselves. With `behind`, every other request waits that much of the backlog."""
    encoding, _ = made_system(num_steps=4, num_windows=1)
    rng = np.random.default_rng(seed)
    hour = np.repeat(rng.integers(0, 2, -(-num // 100)), 100)[:num]
    running = rng.integers(0, 5, num) + 5 * hour
    nodes = [
        {"same_site": float(kind == 0), "is_cloud": float(kind == 2), "free": 1.0, "waiting": 0.0, "needed": 0.1,
         "backlog": 0.0, "run": float(run), "acceptance": 1.0, "running": float(beside)}
        for run, beside in zip(rng.uniform(1.0, 8.0, num), running, strict=True)
    ]  # fmt: skip
    node = np.array(observation_of(tuple(nodes), DEADLINE).node)[:, :, 0]
    mib = rng.uniform(0.0, 50.0, num)
    request = np.zeros((len(encoding.cluster.node_names) + 64, num), np.float32)
    first = encoding.cluster.num_nodes
    names = [feature.name for feature in NUMERIC_REQUEST_FEATURES]
    request[first + names.index("input")] = np.log1p(mib)
    unit_s = encoding.problem.time_unit_s
    run = np.array([one["run"] for one in nodes]) * np.exp(
        spread * rng.standard_normal(num) + busy_hours * hour
    )
    run *= np.exp(power * (np.log1p(running) - np.log1p(running).mean()))
    wait = 0.5 + 0.02 * mib
    if behind:
        rows = [feature.name for feature in NODE_FEATURES]
        backlog = rng.uniform(2.0, 9.0, num) * (np.arange(num) % 2)
        node[rows.index("backlog")] = np.log1p(backlog)
        node[rows.index("num_waiting")] = np.log1p(backlog > 0.0)
        wait = np.where(backlog > 0.0, behind * backlog, wait)
    yes, no = np.ones(num, bool), np.zeros(num, bool)
    seen = Observed(yes, no, no, wait * unit_s, yes, run * unit_s, yes)
    return Labelled(np.concatenate([node, request]), seen, np.arange(num) // 100), encoding


def test_the_log_tells_scatter_and_transfers() -> None:
    offers, encoding = labelled(2_000, kind=1)
    found = fit_rules(offers, encoding)
    assert found.spread == pytest.approx(0.3, rel=0.1)
    assert found.latency[1] == pytest.approx(0.5, rel=1e-3)
    assert found.per_mib[1] == pytest.approx(0.02, rel=1e-3)
    assert found.latency[0] == found.latency[1]  # a kind of offer never made borrows the line through all
    assert (found.wait_scale, found.behind_scale) == (1.0, 0.0)  # nobody queued
    numbers = numbers_of(found.params(EXPECTED_ON_TIME, price=0.05))
    assert float(numbers["price"]) == pytest.approx(0.05)
    assert float(numbers["spread"]) == pytest.approx(found.spread)


def test_the_log_tells_how_a_crowd_slows_runs() -> None:
    offers, encoding = labelled(2_000, kind=1, power=0.6)
    found = fit_rules(offers, encoding)
    assert found.crowding[:2] == pytest.approx((0.6, 0.0), abs=0.05)
    assert found.spread == pytest.approx(0.3, rel=0.1)  # of what the crowd leaves
    assert fit_rules(labelled(2_000, kind=1)[0], encoding).crowding == (0.0, 0.0, 0.0)


def test_the_log_tells_how_long_requests_wait_behind_others_though_cores_are_free() -> None:
    offers, encoding = labelled(2_000, kind=1, behind=0.6)
    found = fit_rules(offers, encoding)
    assert found.behind_scale == pytest.approx(0.6, rel=1e-3)
    assert found.wait_scale == 1.0  # of none short of cores
    assert found.latency[1] == pytest.approx(0.5, rel=1e-3)  # transfers are read off those that start at once


def test_long_runs_of_busy_hours_are_not_laid_to_the_crowd() -> None:
    """Over all offers runs and requests that run beside go together; at one time they do not."""
    offers, encoding = labelled(4_000, kind=1, busy_hours=0.5)
    assert fit_rules(offers, encoding).crowding == (0.0, 0.0, 0.0)


def test_little_is_taken_from_a_thin_log() -> None:
    offers, encoding = labelled(3, kind=1, spread=5.0)
    few = fit_rules(offers, encoding)
    assert few.latency == few.per_mib == (0.0, 0.0, 0.0)
    assert few.spread < 3.0
    nothing = fit_rules(jax.tree.map(lambda leaf: leaf[..., :0], offers), encoding)
    assert nothing.spread == pytest.approx(RUN_TIME_SPREAD)


@pytest.mark.slow
def test_a_made_log_of_refusals_drops_and_failures_gives_finite_numbers() -> None:
    encoding, windows = made_system()
    found = fit_rules(labelled_offers(windows, encoding), encoding)
    assert all(np.isfinite([found.spread, found.wait_scale, *found.latency, *found.per_mib]))
    assert min(*found.latency, *found.per_mib) >= 0.0


def test_what_a_log_without_deadlines_or_capacities_leaves_of_the_rules_is_said() -> None:
    encoding, _ = made_system(num_steps=4, num_windows=1)  # one of its four nodes has cores without end
    both = {rule: rule_params(rule) for rule in RULES}
    said = rules_in_words(both, encoding)
    assert said.startswith(f"rules from the log: {', '.join(RULES)}; the cores of 1 of 4 nodes are not known")
    one = {LEAST_EXPECTED_RESPONSE: both[LEAST_EXPECTED_RESPONSE]}
    assert "not expected_on_time: requests have no deadlines" in rules_in_words(one, encoding)
    finite = replace(encoding, cluster=replace(encoding.cluster, capacity=np.ones((3, 4))))
    assert rules_in_words(both, finite) == f"rules from the log: {', '.join(RULES)}"

"""What agents say of run times, whatever they request: found in a log, and used everywhere alike."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.judges.bundle_policies import encoding_of
from evaluation.problems.placement.dependences import dependences_of
from offline_rl.placement_contract import setting_of
from offline_rl.runner import Request, load
from tests.offline_rl.bundles import MLP, made_policy
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_fit_encoding import DAYS, archived, request
from twin.placement.encode import read_rows
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.run_habits import (
    MIN_RUNS_EACH,
    RunHabits,
    expected_s_of,
    fit_run_habits,
    own_runs_s,
)

ASKED_TOO_MUCH = {"careful": 1.5, "usual": 4.0, "careless": 12.0}
SPEED = np.array([0.5, 1.0, 2.0])
SHAPE = (2, 3)


def runs_of(num_rows: int, asked: dict[str, float], seed: int = 0) -> tuple:
    """Runs of two services on three nodes; careless agents meet the quick node more often, and all ask for more than
    they need."""
    rng = np.random.default_rng(seed)
    agents = rng.choice(list(asked), num_rows)
    service = rng.integers(2, size=num_rows)
    node = np.where((agents == "careless") & (rng.random(num_rows) < 0.6), 0, rng.integers(3, size=num_rows))
    work_s = 20.0 * np.exp(rng.normal(size=num_rows))
    expected_s = work_s * np.array([asked[one] for one in agents])
    run_s = work_s * SPEED[node] * np.exp(0.2 * rng.normal(size=num_rows))
    return service, agents.tolist(), node, run_s, expected_s


def test_what_agents_ask_for_too_much_is_found_whatever_nodes_they_ran_on():
    found = fit_run_habits(*runs_of(6_000, ASKED_TOO_MUCH), SHAPE)
    assert found is not None
    assert found.agents == ("careful", "careless", "usual")
    np.testing.assert_allclose(found.of_agent[:, 0] / found.of_agent[:, 1], 12.0 / 1.5, rtol=0.1)
    np.testing.assert_array_equal(found.factor(np.zeros(2, int), [None, "a stranger"]), 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_agents_ask_alike(seed):
    assert fit_run_habits(*runs_of(6_000, dict.fromkeys("abcdef", 3.0), seed), SHAPE) is None


def test_agents_of_few_runs_have_no_factor_of_their_own():
    service, agents, node, run_s, expected_s = runs_of(2_000, ASKED_TOO_MUCH)
    agents[: MIN_RUNS_EACH - 1] = ["rare"] * (MIN_RUNS_EACH - 1)
    assert "rare" not in fit_run_habits(service, agents, node, run_s, expected_s, SHAPE).agents
    assert fit_run_habits(service, ["one"] * 2_000, node, run_s, expected_s, SHAPE) is None
    assert fit_run_habits(service, [None] * 2_000, node, run_s, expected_s, SHAPE) is None


def made_log(rng, of_agent):
    """Three runs of every agent with each of twelve services, on the nodes of `SPEED`."""
    num_rows = 3 * 12 * len(of_agent)
    agent, service = rng.integers(len(of_agent), size=num_rows), rng.integers(12, size=num_rows)
    node, asked_s = rng.integers(3, size=num_rows), np.exp(rng.normal(3.0, 1.0, num_rows))
    factor = of_agent[agent] * np.exp(0.3 * np.sin(12.0 * agent + service))
    run_s = factor * asked_s * SPEED[node] * np.exp(0.6 * rng.normal(size=num_rows))
    return service, [f"a{one:02d}" for one in agent], node, run_s, asked_s


def test_runs_that_habits_were_fitted_on_scatter_as_others_do_about_what_is_expected_without_them():
    """Expected with themselves, they seem surer by a tenth; means over logs."""
    scatter = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        of_agent = np.exp(rng.normal(size=40))
        fitted, later = made_log(rng, of_agent), made_log(rng, of_agent)
        found, row = fit_run_habits(*fitted, (12, 3)), []
        for (service, agents, node, run_s, asked_s), left_out in (
            (fitted, False),
            (fitted, True),
            (later, False),
        ):
            own_s, is_asked = run_s / SPEED[node] if left_out else None, np.zeros(len(node), bool)
            expected_s = expected_s_of(found, service, agents, asked_s, is_asked, own_s)
            row.append(np.std(np.log(run_s / (expected_s * SPEED[node]))))
        scatter.append(row)
    with_themselves, without, of_later = np.mean(scatter, axis=0)
    assert with_themselves < 0.94 * of_later
    assert without == pytest.approx(of_later, rel=0.02)


def test_what_is_expected_without_a_run_is_what_is_found_where_it_is_left_out():
    """Two services an agent, about thirty runs each: fitted again without one run after another."""
    rng, num_rows = np.random.default_rng(0), 720
    agent, service, node = (
        rng.integers(12, size=num_rows),
        rng.integers(2, size=num_rows),
        rng.integers(3, size=num_rows),
    )
    of_pair = 0.5 * rng.normal(size=(12, 1)) + 0.5 * rng.normal(size=(12, 2))
    asked_s = np.full(num_rows, 10.0)
    run_s = asked_s * SPEED[node] * np.exp(of_pair[agent, service] + 0.5 * rng.normal(size=num_rows))
    columns = service, np.array([f"a{one:02d}" for one in agent]), node, run_s, asked_s
    found, told, refitted = fit_run_habits(*columns, SHAPE), [], []
    assert found is not None
    usual = found.factor(service, columns[1])
    without = found.factor(service, columns[1], run_s / SPEED[node] / asked_s)
    for row in range(0, num_rows, 18):
        again = fit_run_habits(*(np.delete(column, row) for column in columns), SHAPE)
        assert again is not None
        refitted.append(np.log(again.factor(service, columns[1])[row] / usual[row]))
        told.append(np.log(without[row] / usual[row]))
    slope = np.dot(told, refitted) / np.dot(refitted, refitted)
    assert slope == pytest.approx(1.0, abs=0.25)  # with the pair's whole part, 1.6
    assert np.corrcoef(told, refitted)[0, 1] > 0.9


def test_training_days_alone_hold_runs_that_habits_were_fitted_on():
    arrival_s = np.array([100.0, 90_000.0, 100.0, 100.0, 200_000.0])
    node, finish_s = np.array([0, 1, -1, 2, 0]), arrival_s + np.array([6.0, 7.0, 8.0, np.inf, 9.0])
    found = own_runs_s((dt.date(1970, 1, 1), dt.date(1970, 1, 2)), arrival_s, arrival_s + 1.0, finish_s, node)
    np.testing.assert_array_equal(found, [5.0, 6.0, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("exponent", [0.3, 0.7])
def test_how_far_requested_times_count_is_found_and_in_full_where_they_tell_all(exponent):
    """Of two services of unlike sizes, whose quick node gets the long requests more often."""
    rng = np.random.default_rng(4)
    service = rng.integers(2, size=6_000)
    beyond = rng.normal(size=6_000)
    asked_s = np.array([10.0, 400.0])[service] * np.exp(beyond)
    node = np.where((beyond > 0.5) & (rng.random(6_000) < 0.5), 0, rng.integers(3, size=6_000))
    usual_s = np.array([5.0, 80.0])[service] * SPEED[node] * np.exp(0.3 * rng.normal(size=6_000))
    is_asked = rng.random(6_000) < 0.9
    asked_s = np.where(is_asked, asked_s, np.array([5.0, 80.0])[service])
    log = service, [None] * 6_000, node, usual_s * np.where(is_asked, np.exp(exponent * beyond), 1.0), asked_s
    found = fit_run_habits(*log, SHAPE, is_asked)
    assert found.agents == ()
    assert found.exponent == pytest.approx(exponent, abs=0.02)
    np.testing.assert_allclose(found.typical_s, [10.0, 400.0], rtol=0.05)
    longer, unasked = (
        expected_s_of(found, np.zeros(2, int), [None] * 2, np.array([10.0, 40.0]), np.array([one, one]))
        for one in (True, False)
    )
    assert longer[1] / longer[0] == pytest.approx(4.0**found.exponent)
    assert unasked.tolist() == [10.0, 40.0]
    in_full = *log[:3], usual_s * np.exp(beyond), asked_s
    assert fit_run_habits(*in_full, SHAPE, is_asked) is None
    assert fit_run_habits(*log, SHAPE) is None, "nothing is said to be requested"


def test_a_log_expects_runs_by_who_asks_for_them(tmp_path: Path):
    rng = np.random.default_rng(1)
    nodes = [{"node_id": "m0", "site": "here", "tier": "pool", "cpu_cores": 4.0}]
    requests = [
        request(number, 0, 20.0 * number, run_s, ran_node="m0", service="a", agent=("ann", "bob")[number % 2],
                requested_run_s=run_s * (2.0, 10.0)[number % 2])
        for number, run_s in enumerate((10.0 * np.exp(0.5 * rng.normal(size=1_200))).tolist())
    ]  # fmt: skip
    archive = archived(tmp_path / "archive", nodes, requests)
    encoding = fit_encoding(archive, DAYS[:1])
    rows, _ = read_rows(archive, encoding, DAYS[:1], known_until_s=np.inf)
    run_s = rows.finish_s - rows.start_s
    ratio = encoding.cluster.run_ratio[encoding.cluster.services.index("a"), 0]
    np.testing.assert_allclose(ratio * rows.request.expected_run_s, run_s, rtol=0.05)
    assert Encoding.from_json(encoding.to_json()).to_json() == encoding.to_json()
    assert "run_habits" not in replace(encoding, run_habits=None).to_json()
    words, *_ = dependences_of(encoding.cluster, None, encoding.run_habits)
    assert words == "run times that differ between 2 agents for the same service and request (5.0 times)"


@pytest.mark.parametrize(("agents", "exponent"), [(("ann", "bob"), 1.0), (("ann", "bob"), 0.4), ((), 0.4)])
def test_runner_books_and_a_bundle_in_a_comparison_expect_what_training_does(
    tmp_path: Path, agents: tuple[str, ...], exponent: float
):
    cluster = made_cluster()
    services = cluster.services
    factors = np.random.default_rng(0).uniform(0.2, 5.0, (len(services), len(agents)))
    typical_s = np.linspace(5.0, 50.0, len(services)) if exponent < 1.0 else np.zeros(0)
    habits = RunHabits(agents, factors, exponent, typical_s)
    encoding = replace(made_encoding(cluster), run_habits=habits)
    assert "run_habits" not in setting_of(made_encoding(cluster))
    made_policy(tmp_path / "bundle", encoding, MLP)
    words = bundle_text(bundle_facts(tmp_path / "bundle"))
    assert ("of 2 agents" in words) == bool(agents)
    assert ("is expected to take 1.32 times as long" in words) == (exponent < 1.0)
    policy, nodes = load(tmp_path / "bundle"), [{"name": name} for name in cluster.node_names]
    seen = encoding_of(policy.setting, made_encoding(cluster)).run_habits
    assert seen.agents == habits.agents
    np.testing.assert_array_equal(seen.of_agent, habits.of_agent)
    assert seen.exponent == exponent
    np.testing.assert_array_equal(seen.typical_s, typical_s)
    for index, agent, stated_s in ((1, "ann", None), (2, "bob", 40.0), (1, "a stranger", 40.0)):
        asked = Request(service=services[index], agent=agent, requested_run_s=stated_s)
        whole_s = encoding.run_of_service_s[index] if stated_s is None else stated_s
        is_asked = np.array([stated_s is not None])
        expected_s = float(
            expected_s_of(habits, np.array([index]), [agent], np.array([whole_s]), is_asked)[0]
        )
        shown = policy.explain(nodes, asked, 1e9).request["expected_run"]
        assert encoding.problem.time_unit_s * np.expm1(shown) == pytest.approx(expected_s, rel=1e-5)
        books = policy.ledger(nodes)
        books.place(1, cluster.node_names[0], asked, 1e9)
        (held,) = books.nodes(1e9)[0].held
        assert held.expected_run_s == pytest.approx(expected_s)
        assert policy.expected_run_s(held) == pytest.approx(expected_s)

"""What usually happens, against systems whose speeds, affinities and preferences are known."""

import numpy as np
import pytest

from twin.placement.service_times import acceptances, offer_kind, rows_of_each, run_ratios, shrunk_means

NUM_SERVICES, NUM_NODES = 5, 4


def log_of(rows: int, spread: float, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Services, nodes and run times of a system, expected at 10 s, and its true ratios."""
    rng = np.random.default_rng(seed)
    speed, affinity = rng.normal(size=NUM_NODES), rng.normal(size=(NUM_SERVICES, NUM_NODES))
    true = np.exp(spread * (0.5 * speed[None] + affinity))
    service, node = rng.integers(0, NUM_SERVICES, rows), rng.integers(0, NUM_NODES, rows)
    return service, node, 10.0 * true[service, node] * rng.lognormal(0.0, 0.4, rows), true


def test_ratios_are_those_of_the_system_where_the_log_is_long() -> None:
    service, node, run_s, true = log_of(20_000, 0.5)
    found = run_ratios(service, node, run_s, np.full(20_000, 10.0), true.shape).ratio
    np.testing.assert_allclose(np.log(found), np.log(true), atol=0.06)


def test_rows_of_each_group_are_in_order_and_those_of_none_are_left_out() -> None:
    group = np.random.default_rng(0).integers(-1, 4, 50)
    for found, wanted in zip(rows_of_each(group, 6), range(6), strict=True):
        np.testing.assert_array_equal(found, np.flatnonzero(group == wanted))
    assert [len(rows) for rows in rows_of_each(np.zeros(0, int), 2)] == [0, 0]


def test_shrunk_means_are_nearer_to_the_truth_than_plain_ones_where_the_log_is_short() -> None:
    errors = []
    for seed in range(20):
        service, node, run_s, true = log_of(60, 0.3, seed)
        found = run_ratios(service, node, run_s, np.full(60, 10.0), true.shape).ratio
        pair, logs = service * NUM_NODES + node, np.log(run_s / 10.0)
        count = np.bincount(pair, minlength=true.size)
        plain = (np.bincount(pair, logs, minlength=true.size) / np.maximum(count, 1)).reshape(true.shape)
        errors.append([np.mean((np.log(one) - np.log(true)) ** 2) for one in (found, np.exp(plain))])
    shrunk, plain_error = np.mean(errors, axis=0)
    assert shrunk < 0.8 * plain_error


def test_nodes_that_only_chance_tells_apart_are_taken_as_alike() -> None:
    service, node, run_s, true = log_of(400, 0.0)
    found = run_ratios(service, node, run_s, np.full(400, 10.0), true.shape).ratio
    assert np.ptp(np.log(found)) < 0.15
    assert abs(np.log(found).mean()) < 0.06


def test_groups_without_values_have_a_mean_though_the_others_never_scatter() -> None:
    """All is known of a log without chance, and nothing of the services, nodes and scenarios that it does not show."""
    service, node = np.repeat(1, 8), np.repeat([0, 1], 4)
    found = run_ratios(service, node, np.repeat([1.0, 4.0], 4), np.ones(8), (2, 3))
    np.testing.assert_allclose(found.ratio, np.broadcast_to([1.0, 4.0, 2.0], (2, 3)))
    assert np.isfinite(found.variance).all()
    always, never = np.repeat(1, 8), np.repeat(2, 8)
    told = acceptances(
        np.repeat([1.0, 0.0], 8), np.zeros(16, int), np.r_[always, never], np.array(["a"] * 16), 3
    )
    np.testing.assert_allclose(told.of_scenario[:, 0], [0.5, 1.0, 0.0])


def test_rows_without_run_time_node_or_expectation_say_nothing() -> None:
    service, node = np.array([0, 0, 1]), np.array([0, -1, 1])
    run_s, expected_s = np.array([np.nan, 5.0, 5.0]), np.array([10.0, 10.0, 0.0])
    np.testing.assert_array_equal(run_ratios(service, node, run_s, expected_s, (2, 2)).ratio, np.ones((2, 2)))


def test_kinds_of_offers() -> None:
    same, cloud = np.array([True, False, True, False]), np.array([False, False, True, True])
    assert offer_kind(same, cloud).tolist() == [0, 1, 0, 2]


def test_agents_who_refuse_are_told_from_their_scenario() -> None:
    rng = np.random.default_rng(1)
    rows, likes = 6_000, np.where(np.arange(20) < 5, 0.1, 0.9)
    agent, kind, scenario = rng.integers(0, 20, rows), rng.integers(0, 2, rows), np.zeros(rows, int)
    accepted = np.where(kind == 0, 1.0, rng.random(rows) < likes[agent])
    accepted[:50] = np.nan
    names = np.array([f"agent-{one:02d}" for one in agent])
    names[50:100] = ""
    found = acceptances(accepted, kind, scenario, names, 2)
    assert found.of_scenario[0] == pytest.approx([1.0, 0.7, 1.0], abs=0.03)
    assert found.agents == tuple(f"agent-{one:02d}" for one in range(20))
    np.testing.assert_allclose(found.of_agent[:, 1], likes, atol=0.1)
    np.testing.assert_array_equal(found.of_agent[:, [0, 2]], 1.0)


def test_agents_who_differ_by_chance_alone_are_not_told_apart() -> None:
    rng = np.random.default_rng(2)
    names = np.array([f"agent-{one}" for one in rng.integers(0, 100, 300)])
    found = acceptances(
        (rng.random(300) < 0.7).astype(float), np.ones(300, int), np.zeros(300, int), names, 1
    )
    np.testing.assert_allclose(found.of_agent[:, 1], found.of_scenario[0, 1], atol=0.1)


def test_a_log_without_answers_knows_no_agent() -> None:
    nothing = np.full(3, np.nan)
    found = acceptances(nothing, np.ones(3, int), np.zeros(3, int), np.array(["a", "b", ""]), 2)
    assert found.agents == ()
    np.testing.assert_array_equal(found.of_scenario, np.ones((2, 3)))


def test_what_is_known_of_means_is_as_far_from_the_truth_as_its_variance_says() -> None:
    """Groups of one to six values, scattering by 1 around means that scatter by .5: with either taken too large or too
    small the squares of the errors are not what is told, group by group."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(6_000), np.arange(6_000) % 6 + 1)
    true = 0.5 * rng.normal(size=6_001)
    mean, variance = shrunk_means(true[group] + rng.normal(size=len(group)), group, 6_001)
    assert (mean[-1], variance[-1]) == pytest.approx((0.0, 0.25), abs=0.03)  # a group without any
    for count in range(1, 7):
        of_size = np.arange(6_000) % 6 + 1 == count
        assert np.mean((mean - true)[:-1][of_size] ** 2) == pytest.approx(1.0 / (count + 4.0), rel=0.15)
        np.testing.assert_allclose(variance[:-1][of_size], 1.0 / (count + 4.0), rtol=0.1)

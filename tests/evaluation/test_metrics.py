"""Metrics against sums done by hand, then the properties their formulas promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evaluation.comparison import metrics
from evaluation.comparison.metrics.fairness import jain_index
from tests.evaluation.made import made_decisions
from twin.ordering.slowdown import bounded_slowdown
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.rewards import response_reward
from twin.placement.types import (
    COMPLETED,
    DROPPED,
    FAILED,
    REJECTED,
    UNKNOWN,
    PlacementDecisionInfo,
    PlacementOutcome,
)

INF, NAN = np.inf, np.nan
DURATIONS = arrays(np.float64, 12, elements=st.floats(0.0, 1e6))


def five_fates():
    """On time; too late; refused; failed; censored."""
    return made_decisions(
        5,
        arrival_s=[0.0, 0.0, 0.0, 0.0, 0.0],
        start_s=[10.0, 150.0, INF, 20.0, 30.0],
        finish_s=[110.0, 250.0, INF, 60.0, INF],
        status=[COMPLETED, COMPLETED, REJECTED, FAILED, UNKNOWN],
        settled=[True, True, True, True, False],
        off_site=[True, False, True, False, False],
    )


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.ON_TIME, 1 / 4),
        (metrics.ACCEPTED_RATIO, 4 / 5),
        (metrics.COMPLETED_RATIO, 2 / 3),
        (metrics.OFFLOAD_RATIO, 1 / 4),
        (metrics.MEAN_WAIT, (10 + 150 + 20 + 30) / 4),
        (metrics.WAIT_P50, 20.0),
        (metrics.WAIT_P90, 150.0),
        (metrics.WAIT_P99, 150.0),
        (metrics.BOUNDED_SLOWDOWN, (1.1 + 2.5 + 1.5) / 3),
        (metrics.BOUNDED_SLOWDOWN_P50, 1.5),
        (metrics.BOUNDED_SLOWDOWN_P99, 2.5),
        (metrics.MEAN_RESPONSE, (110 + 250) / 2),
        (metrics.RESPONSE_P95, 250.0),
        (
            metrics.MEAN_LOG_RESPONSE,
            np.log(1.1 * 2.5 * 1000.0 * 1000.0) / 4,
        ),  # refused and failed cost the worst
        (metrics.MEAN_LOG_SLOWDOWN, np.log(1.1 * 2.5 * 1.5) / 3),
        (metrics.JAIN_FAIRNESS, 1.0),
    ],
)
def test_by_hand(metric, expected):
    assert metric.compute(five_fates()) == pytest.approx(expected)


def test_a_finish_exactly_at_the_deadline_is_on_time():
    assert metrics.ON_TIME.compute(made_decisions(1, wait_s=[100.0], deadline_s=[200.0])) == 1.0


def test_what_was_lost_on_an_overfull_node_was_neither_on_time_nor_completed():
    fates = {"start_s": [10.0, NAN, 30.0], "finish_s": [110.0, NAN, INF], "settled": [True, False, False]}
    decisions = made_decisions(3, arrival_s=[0.0] * 3, status=[COMPLETED, UNKNOWN, UNKNOWN], **fates)
    assert decisions.lost.tolist() == [False, True, False]
    assert metrics.ON_TIME.compute(decisions) == pytest.approx(1 / 2)
    assert metrics.COMPLETED_RATIO.compute(decisions) == pytest.approx(1 / 2)
    assert metrics.MEAN_LOG_SLOWDOWN.compute(decisions) == pytest.approx((np.log(1.1) + np.log(1000.0)) / 2)
    assert metrics.BOUNDED_SLOWDOWN_P99.compute(decisions) == 1000.0


def rewarded(decisions):
    """[rows] the reward of every decision, where it is settled."""
    facts = PlacementDecisionInfo(
        decisions.node,
        decisions.site,
        decisions.agent,
        decisions.off_site,
        decisions.arrival_s,
        decisions.expected_run_s,
        decisions.deadline_s,
        decisions.demand,
    )
    outcome = PlacementOutcome(decisions.start_s, decisions.finish_s, decisions.status)
    reward = np.asarray(response_reward(PlacementConfig().worst_response, facts, outcome))
    return np.where(decisions.settled, reward, NAN)


def test_without_deadlines_the_reward_is_minus_the_metric_that_leads():
    decisions = five_fates()
    lead = metrics.main_metric("response").compute(decisions)
    assert lead == pytest.approx(-np.nanmean(rewarded(decisions)))
    assert metrics.main_metric("on_time") is metrics.ON_TIME


def test_a_run_three_times_as_long_costs_the_log_of_three_whether_the_node_is_slow_or_shared():
    usual, slow = (made_decisions(2, run_s=[100.0, run_s]) for run_s in (100.0, 300.0))
    assert rewarded(usual) == pytest.approx([0.0, 0.0])
    assert rewarded(slow) == pytest.approx([0.0, -np.log(3.0)])
    fast = made_decisions(1, run_s=[50.0])
    assert rewarded(fast) == pytest.approx([np.log(2.0)])  # and a fast node is worth its speed
    assert metrics.MEAN_LOG_SLOWDOWN.compute(slow) == 0.0  # which a slowdown does not see


def test_an_offer_that_fails_at_once_is_not_a_fast_one():
    failing = made_decisions(1, run_s=[0.0], status=[FAILED])
    assert rewarded(failing) == pytest.approx([-np.log(1000.0)])
    assert metrics.MEAN_LOG_RESPONSE.compute(failing) == pytest.approx(np.log(1000.0))


def test_utilisation_counts_only_what_runs_inside_the_window():
    decisions = made_decisions(
        3,
        arrival_s=[0.0, 0.0, 90.0],
        start_s=[0.0, 60.0, INF],
        finish_s=[50.0, 160.0, INF],
        demand=np.array([[2.0, 1.0, 4.0]] * 3),
        begin_s=[10.0] * 3,
        end_s=[110.0] * 3,
        span_s=[100.0 / 3] * 3,
        capacity=[4.0, 1.0, 1.0],
    )
    assert metrics.UTILISATION.compute(decisions) == pytest.approx((2 * 40 + 1 * 50) / (4 * 100))


def test_fairness_is_of_the_agents_means_and_leaves_hidden_agents_out():
    decisions = made_decisions(4, wait_s=[0.0, 200.0, 100.0, 9e9], agent=[0, 0, 1, -1])
    mean_0, mean_1 = (1.0 + 3.0) / 2, 2.0
    assert metrics.JAIN_FAIRNESS.compute(decisions) == pytest.approx(
        (mean_0 + mean_1) ** 2 / (2 * (mean_0**2 + mean_1**2))
    )


def test_one_agent_bearing_everything_gives_one_nth():
    assert jain_index(np.array([5.0, 0.0, 0.0, 0.0]), np.ones(4, bool)) == pytest.approx(0.25)


@given(DURATIONS, DURATIONS)
def test_slowdown_is_at_least_one_and_grows_with_the_wait(wait_s, run_s):
    slowdown = bounded_slowdown(wait_s, run_s)
    assert np.all(slowdown >= 1.0)
    assert np.all(bounded_slowdown(wait_s + 60.0, run_s) >= slowdown)


@given(DURATIONS, st.floats(1.0, 1e3))
def test_slowdown_does_not_depend_on_the_unit_of_time_above_the_threshold(wait_s, factor):
    run_s = np.full(12, 25.0)
    scaled = bounded_slowdown(wait_s * factor, run_s * factor)
    np.testing.assert_allclose(scaled, bounded_slowdown(wait_s, run_s), rtol=1e-12)


@given(arrays(np.float64, 6, elements=st.floats(1.0, 1e4)), st.floats(0.01, 100.0))
def test_fairness_lies_between_one_nth_and_one_and_ignores_scale(value, factor):
    present = np.ones(6, bool)
    index = jain_index(value, present)
    assert 1 / 6 - 1e-12 <= index <= 1.0 + 1e-12
    assert jain_index(value * factor, present) == pytest.approx(index)


@given(DURATIONS, st.permutations(range(12)))
@pytest.mark.parametrize("metric", metrics.METRICS, ids=lambda metric: metric.name)
def test_the_order_of_rows_does_not_matter(metric, wait_s, order):
    order = np.asarray(order)
    agent, unit = np.arange(12) % 3, np.arange(12) % 4
    straight = made_decisions(12, wait_s=wait_s, agent=agent, unit=unit, arrival_s=np.zeros(12))
    shuffled = made_decisions(
        12,
        start_s=straight.start_s[order],
        finish_s=straight.finish_s[order],
        arrival_s=np.zeros(12),
        agent=agent[order],
        unit=unit[order],
    )
    assert metric.compute(shuffled) == pytest.approx(metric.compute(straight))


@pytest.mark.parametrize("metric", metrics.METRICS, ids=lambda metric: metric.name)
def test_drawing_a_unit_twice_is_repeating_its_rows(metric):
    generator = np.random.default_rng(3)
    columns = {
        "wait_s": generator.exponential(100.0, 30),
        "run_s": generator.exponential(100.0, 30),
        "status": generator.choice([COMPLETED, FAILED, DROPPED], 30),
        "agent": generator.integers(0, 4, 30),
        "off_site": generator.random(30) < 0.5,
        "arrival_s": np.zeros(30),
        "unit": np.repeat([0, 1, 2], 10),
    }
    twice = np.concatenate([np.arange(20), np.arange(10, 20)])
    weights = np.array([[1.0, 2.0, 0.0]])
    resampled = metric.statistic(made_decisions(30, **columns))(weights)[0]
    repeated = made_decisions(30, **{name: value[twice] for name, value in columns.items()})
    assert resampled == pytest.approx(metric.compute(repeated))


@given(arrays(np.float64, 9, elements=st.floats(0.0, 1e5)))
def test_percentiles_agree_with_numpy(wait_s):
    decisions = made_decisions(9, arrival_s=np.zeros(9), wait_s=wait_s)
    for percent, metric in ((50, metrics.WAIT_P50), (90, metrics.WAIT_P90), (99, metrics.WAIT_P99)):
        assert metric.compute(decisions) == np.quantile(wait_s, percent / 100, method="inverted_cdf")


def test_percentiles_of_many_rows_and_any_weights_are_those_of_a_plain_walk():
    """By marks between which rows are counted one by one; where no row counts there is none."""
    random, size = np.random.default_rng(0), 400
    unit, wait_s = random.integers(0, 7, size), np.round(random.exponential(50.0, size), 1)  # some are equal
    status = np.where(unit == 6, REJECTED, COMPLETED)
    decisions = made_decisions(size, arrival_s=np.zeros(size), wait_s=wait_s, unit=unit, status=status)
    weights = np.concatenate([np.ones((1, 7)), random.integers(0, 4, (40, 7)), np.eye(7)[6:]]).astype(float)
    for percent, metric in ((50, metrics.WAIT_P50), (90, metrics.WAIT_P90), (99, metrics.WAIT_P99)):
        found = metric.statistic(decisions)(weights)
        assert np.isnan(found[-1])
        for row, value in zip(weights[:-1], found, strict=False):
            drawn = sorted(np.repeat(wait_s[unit < 6], row[unit[unit < 6]].astype(int)))
            assert value == drawn[-(-percent * len(drawn) // 100) - 1]  # the smallest that reaches the level


def test_clocks_that_disagree_make_no_wait_and_no_run_negative():
    decisions = made_decisions(2, wait_s=[-5.0, 0.0], run_s=[10.0, -3.0])
    np.testing.assert_array_equal(decisions.wait_s, 0.0)
    np.testing.assert_array_equal(decisions.run_s, [10.0, 0.0])


def test_what_the_log_lacks_is_not_applicable_and_says_why():
    decisions = made_decisions(2, missing={"deadlines": "no request has a deadline"})
    assert metrics.ON_TIME.compute(decisions) == metrics.NotApplicable("no request has a deadline")
    assert metrics.MEAN_WAIT.compute(decisions) == 0.0


def test_nothing_settled_is_undefined_not_zero():
    decisions = made_decisions(2, settled=[False, False], start_s=[INF, INF], finish_s=[INF, INF])
    assert np.isnan(metrics.ON_TIME.compute(decisions))
    assert np.isnan(metrics.MEAN_WAIT.compute(decisions))
    assert np.isnan(metrics.WAIT_P90.compute(decisions))
    assert np.isnan(metrics.JAIN_FAIRNESS.compute(decisions))


def test_every_exported_metric_is_registered_once():
    exported = [
        value for name in metrics.__all__ if isinstance(value := getattr(metrics, name), metrics.Metric)
    ]
    assert len(exported) == len(metrics.METRICS)
    assert set(exported) == set(metrics.METRICS)
    assert len({metric.name for metric in metrics.METRICS}) == len(metrics.METRICS)

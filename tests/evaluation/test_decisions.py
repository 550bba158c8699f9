"""Flattening a trajectory: one row per active decision, each with its own window's clock and unit."""

from typing import NamedTuple

import numpy as np
import pytest

from evaluation.comparison.decisions import concatenate, decisions_from
from evaluation.comparison.metrics import ACCEPTED_RATIO, OFFLOAD_RATIO, ON_TIME, UTILISATION
from logs_schema.errors import ConfigError
from tests.evaluation.made import made_decisions
from twin.contracts import Trajectory
from twin.placement.service_times import without_history
from twin.placement.types import COMPLETED, FAILED, REJECTED, Cluster, PlacementDecisionInfo, PlacementOutcome


class Shape(NamedTuple):
    steps: int = 3
    seats: int = 1
    streams: int = 2

    def full(self, value, dtype=np.float32):
        return np.full(self, value, dtype)


SHAPE = Shape()


def cluster(num_sites=2):
    sites = ("home", "away")[:num_sites]
    return Cluster(
        node_names=("a", "b"),
        capacity=np.array([[4.0, 6.0], [8.0, 8.0], [0.0, 0.0]]),
        unit_capacity=np.array([[4.0, 6.0], [8.0, 8.0], [0.0, 0.0]]),
        site_of_node=np.array([0, num_sites - 1]),
        is_cloud=np.zeros(2, bool),
        sites=sites,
        scenarios=("unknown",),
        services=("unknown",),
        queues=("unknown",),
        rules=np.ones((1, 2), bool),
        **without_history(1, 2, 1),
    )


def trajectory(deadline_s=100.0):
    """Two windows of three steps; the second ends after two. Stream 1 refuses its second offer."""
    active = SHAPE.full(True, bool)
    active[2, 0, 1] = False
    arrival_s = np.arange(6.0).reshape(SHAPE) * 10.0
    status = SHAPE.full(COMPLETED, np.int32)
    status[1, 0, 1] = REJECTED
    demand = np.broadcast_to(np.array([2.0, 1.0, 0.0])[None, :, None, None], (3, 3, 1, 2))
    node = np.arange(6).reshape(SHAPE) % 2
    facts = PlacementDecisionInfo(
        node=node,
        site=SHAPE.full(0, np.int32),
        agent=SHAPE.full(-1, np.int32),
        off_site=node == 1,
        arrival_s=arrival_s,
        expected_run_s=SHAPE.full(30.0),
        deadline_s=SHAPE.full(deadline_s),
        demand=demand,
    )
    outcome = PlacementOutcome(arrival_s + 5.0, arrival_s + 25.0, status)
    nothing = SHAPE.full(0.0)
    return Trajectory(
        None,
        None,
        None,
        active,
        node,
        nothing,
        active,
        facts,
        outcome,
        nothing,
        nothing > 1,
        nothing > 1,
        nothing > 1,
    )


def flattened(**options):
    given = {"unit": np.array([7, 8]), "day": np.array([100, 101]), **options}
    return decisions_from(trajectory(), cluster(), **given)


def test_one_row_per_active_decision_with_its_streams_unit_and_day():
    decisions = flattened()
    assert decisions.num_rows == 5
    np.testing.assert_array_equal(decisions.unit, [7, 8, 7, 8, 7])
    np.testing.assert_array_equal(decisions.day, [100, 101, 100, 101, 100])
    np.testing.assert_array_equal(decisions.arrival_s, [0.0, 10.0, 20.0, 30.0, 40.0])
    np.testing.assert_array_equal(decisions.demand, np.array([[2.0], [1.0], [0.0]]).repeat(5, axis=1))
    np.testing.assert_array_equal(decisions.accepted, [True, True, True, False, True])
    np.testing.assert_array_equal(decisions.wait_s, 5.0)
    np.testing.assert_array_equal(decisions.capacity, [10.0, 16.0, 0.0])


def test_a_unit_for_every_decision_may_be_given():
    unit = np.arange(6).reshape(SHAPE)
    np.testing.assert_array_equal(flattened(unit=unit).unit, [0, 1, 2, 3, 4])


def test_spans_add_up_to_the_windows():
    given = flattened(window_s=np.array([100.0, 50.0]))
    assert given.span_s[given.unit == 7].sum() == pytest.approx(100.0)
    assert given.span_s[given.unit == 8].sum() == pytest.approx(50.0)
    np.testing.assert_array_equal(given.begin_s, [0.0, 10.0, 0.0, 10.0, 0.0])
    np.testing.assert_array_equal(given.end_s, [100.0, 60.0, 100.0, 60.0, 100.0])
    derived = flattened()
    assert derived.span_s[derived.unit == 7].sum() == pytest.approx(40.0)
    assert derived.span_s[derived.unit == 8].sum() == pytest.approx(
        20.0
    )  # an idle seat's clock is not of the window


def test_a_window_begins_with_its_first_decision_and_what_fails_was_accepted():
    played = trajectory()
    active, status, agent = played.active.copy(), played.outcome.status.copy(), SHAPE.full(-1, np.int32)
    active[0, 0, 0], status[1, 0, 0], agent[2, 0, 0] = False, FAILED, 0
    played = played._replace(
        active=active,
        outcome=played.outcome._replace(status=status),
        decision_info=played.decision_info._replace(agent=agent),
    )
    decisions = decisions_from(played, cluster(), unit=np.array([7, 8]), day=np.array([100, 101]))
    first = decisions.unit == 7
    np.testing.assert_array_equal(decisions.begin_s[first], [20.0, 20.0])
    np.testing.assert_array_equal(decisions.accepted[first], [True, True])
    np.testing.assert_array_equal(decisions.on_time[first], [False, True])
    assert "agents" not in decisions.missing
    assert "agents" in flattened().missing


def test_metrics_of_a_flattened_trajectory_by_hand():
    decisions = flattened(window_s=np.array([100.0, 100.0]))
    assert ACCEPTED_RATIO.compute(decisions) == pytest.approx(4 / 5)
    assert ON_TIME.compute(decisions) == pytest.approx(4 / 5)
    assert OFFLOAD_RATIO.compute(decisions) == pytest.approx(1 / 4)
    assert UTILISATION.compute(decisions) == pytest.approx(4 * 2 * 20 / (10 * 200))


def test_what_the_columns_show_to_be_missing_is_said():
    missing = flattened().missing
    assert missing == {"agents": "the log does not name the requesting agents"}
    none = decisions_from(
        trajectory(np.inf), cluster(num_sites=1), unit=np.array([0, 1]), day=np.array([0, 1])
    )
    assert set(none.missing) == {"agents", "deadlines", "sites"}


def test_parts_join_and_clusters_do_not_mix():
    parts = [made_decisions(3, missing={"agents": "hidden"}), made_decisions(2, unit=[5, 5])]
    joined = concatenate(parts)
    np.testing.assert_array_equal(joined.unit, [0, 0, 0, 5, 5])
    assert joined.demand.shape == (3, 5)
    assert joined.missing == {"agents": "hidden"}
    with pytest.raises(ConfigError, match="different clusters"):
        concatenate([made_decisions(1), made_decisions(1, capacity=[9.0, 1.0, 1.0])])
    with pytest.raises(ConfigError, match="no decisions"):
        concatenate([])

"""Rounds worked by hand, and what they must have in common with requests that go at once."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.simulator.rounds import (
    Absence,
    QueueBooks,
    Region,
    RoundsConfig,
    draw_region,
    play_at_once,
    play_together,
    responses_at_once,
    responses_together,
)
from logs_schema.errors import ConfigError
from offline_rl.assignment.insertion import insertion
from twin.assignment.instances import InstanceConfig
from twin.assignment.types import Costs

ONE = InstanceConfig(1, 1, 50, replicas=(1, 1), s_per_mib=(1.0, 1.0), backlogs=(0, 0))


def queue(arrival_s, run_s):
    """Response times of one server, first come first served (Lindley, 1952)."""
    free_s, found = 0.0, []
    for arrived, runs in zip(arrival_s, run_s, strict=True):
        free_s = max(free_s, arrived) + runs
        found.append(free_s)
    return np.array(found)


def test_one_edge_is_a_queue():
    region = draw_region(RoundsConfig(ONE), 0)
    run_s = region.true_s[:, 0]
    assert responses_at_once(region) == pytest.approx(queue(region.arrival_s, run_s) - region.arrival_s)
    begins_s = np.ceil(region.arrival_s / 2.0) * 2.0
    found = responses_together(region, 2.0, insertion)
    assert found.sum() == pytest.approx((queue(begins_s, run_s) - region.arrival_s).sum())


def test_rounds_of_no_length_are_one_request_at_a_time():
    region = draw_region(RoundsConfig(InstanceConfig(6, 3, 60, backlogs=(0, 0)), function_error=0.0), 1)
    gap_s = np.diff(region.arrival_s).min()
    together = responses_together(region, gap_s / 2.0, insertion)
    assert together.mean() == pytest.approx(responses_at_once(region).mean(), rel=0.25)
    assert (together > 0.0).all()


def test_a_region_is_a_function_of_its_seed_and_its_load_is_what_was_asked_for():
    config = RoundsConfig(InstanceConfig(10, 5, 4000, backlogs=(0, 0)), load=0.6)
    region, again = draw_region(config, 3), draw_region(config, 3)
    assert (region.arrival_s == again.arrival_s).all()
    rate = len(region.arrival_s) / region.arrival_s[-1]
    capacity = (region.replicas / region.true_s.mean(axis=0)).sum()
    assert rate / capacity == pytest.approx(0.6, rel=0.1)


def test_impossible_loads_are_refused():
    for wrong in ({"load": 1.0}, {"load": 0.0}, {"spread": -1.0}, {"function_error": -0.1}):
        with pytest.raises(ConfigError, match="rounds"):
            RoundsConfig(ONE, **wrong)


def two_edges(arrival_s, run_s, absences=(), believed=None):
    """Edges of one replica without ways; every request takes `run_s` [edges] on them."""
    run = np.tile(np.array(run_s, float), (len(arrival_s), 1))
    nothing, none = np.zeros(run.shape), np.zeros(run.shape[1])
    work_s = run if believed is None else np.tile(np.array(believed, float), (len(arrival_s), 1))
    costs = Costs(work_s, nothing, nothing, np.full(len(arrival_s), -1), none, none, none, none)
    return Region(
        np.array(arrival_s, float), costs, run, nothing, nothing, np.ones(run.shape[1], int), tuple(absences)
    )


def test_what_an_edge_has_not_finished_when_it_leaves_is_assigned_again():
    """Quick edge: 2 s. It is away from 3 to 10 s, so the second of two requests begins anew on the slow one, 6 s."""
    region = two_edges([0.0, 0.5], [2.0, 6.0], [Absence(0, 3.0, 10.0)])
    played = play_at_once(region)
    assert played.edge.tolist() == [0, 1]
    assert played.finish_s.tolist() == [2.0, 9.0]
    assert played.num_again.tolist() == [0, 1]
    together = play_together(region, 2.0, insertion)
    # At 2 s the second: begins there at 4 s, is lost at 3 s, assigned at 4 s
    assert together.edge.tolist() == [0, 1]
    assert together.decided_s.tolist() == [0.0, 4.0]
    assert together.finish_s.tolist() == [2.0, 10.0]


def test_an_edge_that_is_back_is_used_again_and_one_that_is_away_is_not():
    region = two_edges([0.0, 4.0, 10.0], [2.0, 6.0], [Absence(0, 3.0, 9.0)])
    played = play_at_once(region)
    assert played.edge.tolist() == [0, 1, 0]
    assert played.finish_s.tolist() == [2.0, 10.0, 12.0]


def test_requests_wait_where_no_edge_is_there():
    away = [Absence(0, 1.0, 7.0), Absence(1, 0.5, 20.0)]
    played = play_at_once(two_edges([2.0, 3.0], [2.0, 6.0], away))
    assert played.finish_s.tolist() == [9.0, 11.0]
    assert played.decided_s.tolist() == [7.0, 7.0]
    together = play_together(two_edges([2.0, 3.0], [2.0, 6.0], away), 4.0, insertion)
    assert together.decided_s.tolist() == [8.0, 8.0]


def test_absences_that_are_over_before_anything_comes_change_nothing():
    config = RoundsConfig(InstanceConfig(6, 3, 60, backlogs=(0, 0)))
    region = draw_region(config, 1)
    late = replace(region, arrival_s=region.arrival_s + 100.0)
    left = replace(late, absences=(Absence(0, 5.0, 90.0), Absence(2, 1.0, 2.0)))
    assert responses_at_once(left) == pytest.approx(responses_at_once(late))
    assert responses_together(left, 1.0, insertion) == pytest.approx(responses_together(late, 1.0, insertion))


def test_a_scheduler_that_is_wrong_of_its_edges_chooses_by_what_it_believes():
    played = play_at_once(two_edges([0.0], [5.0, 1.0], believed=[1.0, 5.0]))
    assert (played.edge.tolist(), played.finish_s.tolist()) == ([0], [5.0])


def two_replicas(*true_s):
    """One edge, requests that are expected to take 4 s on a replica, and what the first of them take in truth."""
    region = two_edges([0.0] * 4, [2.0])
    return QueueBooks(replace(region, true_s=np.array(true_s)[:, None], replicas=np.array([2])))


def test_a_scheduler_does_not_know_which_replica_will_take_what_waits():
    found = []
    for true_s in ([9.0, 1.0, 4.0, 4.0], [1.5, 9.0, 4.0, 4.0]):
        books = two_replicas(*true_s)
        for request in range(3):
            books.send(request, 0, 0.0)
        before = np.sort(books.free_s[0]).tolist()
        books.look(0.5)  # two run, one waits
        found.append((before, np.sort(books.free_s[0]).tolist()))
        assert books.costs(np.array([3])).local_s.tolist() == [(3.5 + 3.5 + 4.0) / 2.0]
    assert found[0] == found[1] == ([4.0, 8.0], [4.0, 8.0])


def test_a_queue_is_expected_to_be_served_by_whichever_replica_is_free_first():
    books = two_replicas(1.0, 9.0, 1.0, 1.0)  # in truth the first replica takes all the others
    for request in range(4):
        books.send(request, 0, 0.0)
    books.look(0.5)
    assert books.free_s[0].tolist() == [8.0, 8.0]

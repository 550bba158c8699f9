"""Rounds worked by hand, and what they must have in common with requests that go at once."""

import numpy as np
import pytest

from evaluation.simulator.rounds import RoundsConfig, draw_region, responses_at_once, responses_together
from logs_schema.errors import ConfigError
from offline_rl.assignment.insertion import insertion
from twin.assignment.instances import InstanceConfig

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

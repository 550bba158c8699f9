"""Ranges of what an ordering policy sees, by a log whose queue can be told by hand."""

import math

import numpy as np

from evaluation.problems.ordering.feature_ranges import load_ranges, logged_ranges, save_ranges
from twin.ordering.config import OrderingConfig
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.types import Jobs, Pool

CONFIG = OrderingConfig(num_visible=4, queue_size=8, time_unit_s=60.0)


def log() -> Jobs:
    """On 8 processors: one that runs 600 s on all, two that wait for it, one on a later day, one never started."""
    start_s = np.array([0.0, 600.0, 660.0, 90_000.0, np.nan])
    return Jobs(
        request_id=np.array(list("abcde")),
        arrival_s=np.array([0.0, 60.0, 120.0, 90_000.0, 90_001.0]),
        processors=np.array([8.0, 4.0, 2.0, 8.0, 1.0]),
        requested_s=np.array([1_200.0, 300.0, 60.0, 1.0, 1.0]),
        run_s=np.array([600.0, 120.0, 60.0, 1.0, 1.0]),
        logged_start_s=start_s,
        agent=np.array([0, 0, 1, 1, -1]),
        origin_us=10 * 86_400 * 1_000_000,
    )


def test_ranges_are_those_of_the_queue_at_logged_starts(tmp_path):
    ranges = logged_ranges(log(), Pool(8.0, easy=True), CONFIG, anchor=11, num_days=1)
    assert ranges is not None
    assert set(ranges) == {one.name for one in (*JOB_FEATURES, *POOL_FEATURES)}
    assert ranges["fits"] == (1.0, 1.0)  # at 600 s the pool is free, at 660 s half of it
    low, high = ranges["wait"]
    assert low == 0.0
    assert math.log1p(9.0) < high < 2.0 * math.log1p(9.0)  # waits of 0, 540, 480 and 540 s
    assert ranges["num_waiting"][1] >= math.log1p(2) / 4.0
    assert ranges["free"][0] < 0.5 < 1.0 < ranges["free"][1]
    save_ranges(ranges, tmp_path)
    assert load_ranges(tmp_path) == ranges


def test_without_logged_starts_nothing_is_known(tmp_path):
    assert logged_ranges(log(), Pool(8.0), CONFIG, anchor=10, num_days=5) is None
    assert load_ranges(tmp_path) is None
    save_ranges(None, tmp_path)
    assert load_ranges(tmp_path) is None


def test_moments_at_which_a_log_runs_more_than_there_is_are_left_out():
    crowded = log()._replace(logged_start_s=np.array([0.0, 60.0, 120.0, np.nan, np.nan]))
    ranges = logged_ranges(crowded, Pool(8.0), CONFIG, anchor=11, num_days=1)
    assert ranges is not None
    assert ranges["num_running"][1] < math.log1p(2) / 4.0  # at 120 s two jobs would run on 12 of 8 processors
    assert logged_ranges(crowded, Pool(16.0), CONFIG, 11, 1)["num_running"][1] > math.log1p(2) / 4.0

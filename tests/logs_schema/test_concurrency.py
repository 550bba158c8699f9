"""Use over time against a count at every instant."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logs_schema.concurrency import most_at_once, use_over_time

INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(0, 4)), max_size=12)


@given(INTERVALS)
def test_the_largest_use_is_that_of_the_fullest_instant(intervals):
    begin_s, length_s, amount = np.array(intervals, float).reshape(-1, 3).T
    end_s = begin_s + length_s
    used = [amount[(begin_s <= instant) & (instant < end_s)].sum() for instant in np.unique(begin_s)]
    assert most_at_once(begin_s, end_s, amount) == max(used, default=0.0)


def test_what_ends_at_an_instant_leaves_before_what_begins():
    times_s, use = use_over_time(np.array([0.0, 5.0]), np.array([5.0, 8.0]), np.array([2.0, 3.0]))
    assert times_s.tolist() == [0.0, 5.0, 5.0, 8.0]
    assert use.tolist() == [2.0, 0.0, 3.0, 0.0]


def test_without_amounts_intervals_are_counted():
    assert most_at_once(np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 4.0])) == 2.0

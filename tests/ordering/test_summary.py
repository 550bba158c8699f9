"""Figures of a schedule worked out by hand."""

import numpy as np
import pytest

from evaluation.problems.ordering.summary import summarise
from tests.ordering.making import jobs_of
from twin.ordering.types import Pool


def test_figures_by_hand():
    jobs = jobs_of((0, 4, 9, 20), (0, 2, 9, 5), (10, 6, 9, 40), agent=[0, 1, 0])
    found = summarise(jobs, np.array([0.0, 20.0, 25.0]), Pool(6))
    assert found.mean_wait_s == pytest.approx(35 / 3)
    assert found.p99_wait_s == pytest.approx(15 + 0.98 * 5)  # linear between 15 and 20
    assert found.mean_bounded_slowdown == pytest.approx((1 + 25 / 10 + 55 / 40) / 3)
    assert found.utilisation == pytest.approx((80 + 10 + 240) / (6 * 65))
    users = np.array([(1 + 55 / 40) / 2, 25 / 10])
    assert found.jain_fairness == pytest.approx(users.sum() ** 2 / (2 * (users**2).sum()))


def test_jobs_that_never_start_and_users_that_hide_do_not_count():
    jobs = jobs_of((0, 4, 9, 20), (0, 7, 9, 5), agent=[-1, 0])
    found = summarise(jobs, np.array([3.0, np.nan]), Pool(6))
    assert (found.mean_wait_s, found.mean_bounded_slowdown) == (3.0, 23 / 20)
    assert np.isnan(summarise(jobs, np.array([3.0, np.nan]), Pool(6)).jain_fairness)
    assert np.isnan(summarise(jobs, np.full(2, np.nan), Pool(6))).all()

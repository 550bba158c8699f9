"""Requests that are cancelled as a copy of them completes."""

import numpy as np
import pytest

from logs_schema.copies import beyond_chance
from tests.logs_schema.test_check_report import START, checked, request


def test_those_cancelled_at_the_end_of_another_of_their_kind_count() -> None:
    kind = np.array([0, 0, 1, 1, -1, -1])
    ended_s = np.array([100.0, 100.2, 200.0, 300.0, 400.0, 400.0])
    cancelled = np.array([True, False, True, False, True, False])
    assert beyond_chance(kind, ended_s, cancelled, ~cancelled).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_where_others_end_all_the_time_it_is_chance() -> None:
    rng, count = np.random.default_rng(0), 20_000
    kind, ended_s = rng.integers(0, 3, count), rng.uniform(0.0, 10_000.0, count)
    cancelled = rng.random(count) < 0.2
    found = beyond_chance(kind, ended_s, cancelled, ~cancelled)
    assert abs(found.sum()) < 0.03 * cancelled.sum()


@pytest.mark.parametrize(("late_s", "says"), [(0, True), (40, False)])
def test_an_archive_of_hedged_requests_is_named(tmp_path, late_s, says) -> None:
    """Of every two requests the first one is killed as the second one completes, or later;
    the last day has just begun."""
    rows = []
    for number in range(240):
        arrival, second = START + 200 * (number // 2) + 7 * (number % 2), number % 2
        finish = START + 200 * (number // 2) + 60 + (0 if second else late_s)
        status = "completed" if second else "killed"
        rows.append(
            request(number, 0, arrival=arrival, start=arrival, finish=finish, status=status, agent="a")
        )
    rows.append(request(999, 0, arrival=START + 86_400, start=START + 86_400, finish=START + 86_460))
    named = [line for line in checked(tmp_path, rows).warnings if "sent twice" in line]
    assert len(named) == says
    assert not says or named[0].startswith("100% of the 120 requests of 2020-01-01")

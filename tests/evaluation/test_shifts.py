"""Time-shifted days: never a training day, never before the shift, pooled forward only."""

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.comparison.shifts import (
    ShiftConfig,
    TestDays,
    choose_train_days,
    kept_back,
    parse_shifts,
    plan_shifts,
    refuse_overlap,
)
from evaluation.comparison.training_days import (
    DaysConfig,
    held_out_or_first,
    hours_unseen_of,
    kept_back_of,
    plan_of,
    train_days_of,
)
from logs_schema.errors import ConfigError

START = date(2013, 1, 1)


def day(offset: int) -> date:
    return START + timedelta(days=offset)


def log(*num_requests: int) -> dict[date, int]:
    return {day(offset): count for offset, count in enumerate(num_requests)}


def test_shift_k_of_a_log_is_the_last_training_day_plus_one_plus_k():
    plan = plan_shifts(log(*[900] * 60), [day(0), day(13)], ShiftConfig())
    assert [test.days for test in plan.shifts] == [(day(14),), (day(15),), (day(21),), (day(44),)]
    assert [test.name for test in plan.shifts] == ["0d", "1d", "7d", "30d"]
    assert all(test.note == "" and test.num_requests == 900 for test in plan.shifts)


def test_shift_0_of_a_ground_truth_is_the_last_training_day_itself():
    plan = plan_shifts({}, [day(0), day(13)], ShiftConfig(), truth=True)
    assert [test.days for test in plan.shifts] == [(day(13),), (day(14),), (day(20),), (day(43),)]


def test_thin_days_are_pooled_forward_until_enough():
    plan = plan_shifts(log(99, 100, 0, 300, 200, 500), [day(0)], ShiftConfig("0d", 500, 7))
    (test,) = plan.shifts
    assert test.days == (day(1), day(3), day(4))
    assert test.num_requests == 600
    assert "4 days pooled" in test.note


def test_a_day_in_the_place_of_missing_ones_is_not_called_pooled():
    (test,) = plan_shifts(log(900, 0, 0, 900), [day(0)], ShiftConfig("0d")).shifts
    assert test.days == (day(3),)
    assert test.note == f"no requests from {day(1)} on until {day(3)}, which is judged in their place"


def test_a_log_too_thin_for_the_width_is_used_and_says_so():
    (test,) = plan_shifts(log(99, 10, 20, 30, 40), [day(0)], ShiftConfig("0d", 500, 2)).shifts
    assert test.days == (day(1), day(2))
    assert test.note.startswith("thin: 30 requests in 2 day(s)")


def test_a_log_too_short_has_no_days_and_a_reason():
    shifts = plan_shifts(log(9, 900, 900), [day(0)], ShiftConfig("0d,1w")).shifts
    assert shifts[0].days == (day(1),)
    assert shifts[1].days == ()
    assert "too short" in shifts[1].note
    assert str(day(8)) in shifts[1].note


def test_a_gap_has_no_days_and_a_reason():
    requests = log(9, 0, 0, 0, 900)
    (test,) = plan_shifts(requests, [day(0)], ShiftConfig("0d", 500, 3)).shifts
    assert test.days == ()
    assert "no requests in the 3 days" in test.note


def test_pooled_shifts_that_share_days_say_so():
    shifts = plan_shifts(log(9, 300, 300, 300), [day(0)], ShiftConfig("0d,1d")).shifts
    assert "shares days with 0d" in shifts[1].note


@given(
    st.lists(st.integers(0, 700), min_size=5, max_size=60),
    st.integers(0, 4),
    st.sets(st.integers(0, 40), min_size=1, max_size=4),
    st.integers(1, 900),
    st.integers(1, 9),
)
def test_plans_keep_their_promises(counts, last, shifts, min_requests, max_width_days):
    requests = log(*counts)
    config = ShiftConfig(",".join(f"{shift}d" for shift in shifts), min_requests, max_width_days)
    plan = plan_shifts(requests, [day(offset) for offset in range(last + 1)], config)
    assert [test.shift_days for test in plan.shifts] == sorted(shifts)
    for test in plan.shifts:
        earliest = day(last + 1 + test.shift_days)
        assert all(earliest <= found < earliest + timedelta(days=max_width_days) for found in test.days)
        assert all(requests[found] > 0 for found in test.days)
        assert test.num_requests == sum(requests[found] for found in test.days)
        assert sum(requests[found] for found in test.days[:-1]) < min_requests
        if test.num_requests < min_requests:
            assert test.note


def test_lists_of_shifts():
    assert parse_shifts(" 1m, 0d,1w,7d ,1d") == (0, 1, 7, 30)


@pytest.mark.parametrize("text", ["", "soon", "-1d", "3", "1d;7d", "1.5d"])
def test_what_is_not_a_list_of_shifts_is_refused(text):
    with pytest.raises(ConfigError, match="not a list of time shifts"):
        ShiftConfig(text)


def test_overlap_with_training_is_refused():
    test = TestDays(0, (day(3), day(4)), 9)
    with pytest.raises(ConfigError, match="overlap") as caught:
        refuse_overlap([day(0), day(3)], [test])
    assert "0d: 2013-01-04" in str(caught.value)
    assert "2013-01-05" not in str(caught.value)


def test_training_leaves_room_for_the_largest_shift():
    days = [day(offset) for offset in range(60)]
    chosen = choose_train_days(days, largest_shift_days=30)
    assert chosen == tuple(days[:29])
    (*_, month) = plan_shifts(dict.fromkeys(days, 900), chosen, ShiftConfig()).shifts
    assert month.days == (day(59),)
    assert choose_train_days(days, largest_shift_days=30, num_days=14) == tuple(days[15:29])
    assert choose_train_days(days, largest_shift_days=30, first_day=day(2), last_day=day(5)) == tuple(
        days[2:6]
    )


def test_training_does_not_end_in_a_gap_of_the_log_nor_before_one_that_holds_the_tests():
    days = [day(offset) for offset in (0, 1, 2, 3, 4, 5, 18, 20)]
    room = {"largest_shift_days": 1, "tail_days": 2, "num_days": 3}
    assert choose_train_days(days, **room) == (day(1), day(2), day(3))  # tests on 4 and 5
    assert choose_train_days(days[:3] + days[6:], **room) == (day(0),)  # tests on 1 and 2
    assert choose_train_days([day(0), day(9), day(20)], **room) == (day(9),)  # none can be tested
    assert choose_train_days(days, largest_shift_days=1, tail_days=2, first_day=day(4)) == (day(4), day(5))


def test_fewer_training_days_than_asked_for_are_told_with_the_days_kept_back_and_why():
    days, room = [day(offset) for offset in range(40)], {"largest_shift_days": 30, "tail_days": 7}
    chosen = choose_train_days(days, num_days=40, **room)
    assert chosen == tuple(days[:3])
    reason = kept_back(days, chosen, 40, **room)
    assert reason.startswith("3 of the 40 requested days are trained on: the log begins on 2013-01-01")
    assert "2013-01-04 to 2013-02-09 (37 days) are kept back to test on" in reason
    assert "the largest shift is 30 days" in reason
    assert kept_back(days, chosen, 3, **room) == kept_back(days, chosen, None, **room) == ""
    whole = choose_train_days(days, num_days=50, last_day=days[-1], **room)
    assert kept_back(days, whole, 50, **room).endswith("the log begins on 2013-01-01 and ends on 2013-02-09")


@pytest.mark.parametrize(
    ("per_day", "num_days", "first", "last"), [(900, 5, 2, 6), (900, 2, 5, 6), (900, 9, 0, 6), (250, 5, 1, 5)]
)
def test_tests_get_no_more_days_than_they_need_where_training_would_have_too_few(
    per_day, num_days, first, last
):
    days = [day(offset) for offset in range(10)]
    archive = SimpleNamespace(days=lambda _: days, num_rows=lambda *_: per_day)
    config = ShiftConfig("0d,2d")
    chosen = train_days_of(archive, DaysConfig(num_days=num_days), config)  # with 7 days a test: day 0 alone
    assert (chosen[0], chosen[-1]) == (day(first), day(last))
    assert [test.num_requests for test in plan_of(archive, chosen, config).shifts] == [max(per_day, 500)] * 2
    reason = kept_back_of(archive, chosen, DaysConfig(num_days=num_days), config)
    assert reason == "" if num_days < 9 else "its test takes 1" in reason


def test_misread_dates_are_neither_trained_nor_tested_on():
    rows = log(*[900] * 10) | {date(1970, 1, 1): 1, date(2099, 1, 1): 2}
    archive = SimpleNamespace(days=lambda _: sorted(rows), num_rows=lambda _, at: rows[at])
    chosen = train_days_of(archive, DaysConfig(), ShiftConfig("0d,2d", max_width_days=1))
    assert chosen == tuple(day(offset) for offset in range(7))
    assert [test.days for test in plan_of(archive, chosen, ShiftConfig("0d,2d")).shifts] == [
        (day(7),),
        (day(9),),
    ]
    assert held_out_or_first(archive, chosen, None, 9) == [day(7), day(8), day(9)]


@pytest.mark.parametrize(
    ("first_hour", "num_days", "told"),
    [
        (17, 1, "from 00:00 to 17:00 UTC, and 71% of those of the test days do"),
        (17, 3, ""),
        (0, 1, ""),
        (1, 1, ""),
    ],
)
def test_hours_that_training_has_nothing_of_are_named(first_hour, num_days, told):
    days = [day(offset) for offset in range(4)]

    def scan(_, days, columns):
        for one in days:
            hours = range(first_hour if one == day(0) else 0, 24)
            yield pa.record_batch(
                {"arrival": [datetime(one.year, 1, one.day, hour, 59, tzinfo=UTC) for hour in hours]}
            )

    archive = SimpleNamespace(scan=scan)
    plan = plan_shifts(log(900, 900, 900, 900), days[:num_days], ShiftConfig("0d"))
    found = hours_unseen_of(archive, days[:num_days], plan)
    assert (told in found, bool(found)) == (True, bool(told))


def test_a_short_archive_still_has_training_days_and_an_empty_window_is_refused():
    assert choose_train_days([day(0), day(3)], largest_shift_days=30) == (day(0),)
    with pytest.raises(ConfigError, match="no day of the archive"):
        choose_train_days([day(0), day(9)], largest_shift_days=0, first_day=day(5), last_day=day(8))
    with pytest.raises(ConfigError, match="no day with requests"):
        choose_train_days([], largest_shift_days=0)


@pytest.mark.parametrize("bounds", [{"last_day": day(10)}, {"first_day": day(-1), "last_day": day(3)}])
def test_a_bound_beyond_the_log_is_refused_by_name_and_not_clipped(bounds):
    with pytest.raises(ConfigError, match="does not lie within the log") as caught:
        choose_train_days([day(offset) for offset in range(10)], largest_shift_days=0, **bounds)
    name, wrong = next(iter(bounds.items()))
    assert f"[days] {name} = {wrong}" in str(caught.value)
    assert f"{day(0)} and {day(9)}" in str(caught.value)

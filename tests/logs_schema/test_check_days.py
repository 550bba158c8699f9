from datetime import date, timedelta

import pytest

from logs_schema.log_days import days_astray, log_days

FIRST = date(2020, 3, 1)


def counted(*rows):
    """Rows of consecutive days from FIRST; 0 for a day without any."""
    return {FIRST + timedelta(days=n): num_rows for n, num_rows in enumerate(rows)}


def test_missing_and_thin_days_end_a_dense_stretch():
    days = log_days(counted(100, 90, 0, 110, 100, 120, 9, 100))
    assert days.missing == (date(2020, 3, 3),)
    assert days.thin == (date(2020, 3, 7),)
    assert days.dense == (date(2020, 3, 4), date(2020, 3, 6))
    assert days.num_dense_days == 3


def test_a_tenth_of_the_median_day_is_not_thin():
    assert log_days(counted(100, 10, 100)).thin == ()
    assert log_days(counted(101, 10, 101)).thin == (date(2020, 3, 2),)


@pytest.mark.parametrize(
    ("num_days", "shift", "expected"), [(35, 30, 4), (31, 30, 0), (32, 30, 1), (2, 0, 1), (1, 0, 0)]
)
def test_a_shift_needs_its_test_day_after_the_training_days(num_days, shift, expected):
    assert log_days(counted(*[50] * num_days)).training_days(shift) == expected


def test_of_equal_stretches_the_first_counts_and_order_does_not():
    rows = counted(5, 5, 0, 5, 5)
    assert log_days(dict(reversed(rows.items()))) == log_days(rows)
    assert log_days(rows).dense == (FIRST, FIRST + timedelta(days=1))


def test_no_rows():
    days = log_days({FIRST: 0})
    assert (days.rows, days.dense, days.num_dense_days, days.training_days(0)) == ({}, None, 0, 0)


@pytest.mark.parametrize(
    ("rows", "astray"),
    [
        ({}, []),
        (counted(50, 50, 50), []),
        (
            counted(50, 0, 60) | {date(1970, 1, 1): 1, date(2099, 1, 1): 1},
            [date(1970, 1, 1), date(2099, 1, 1)],
        ),
        (counted(50, 0, 60) | {date(2099, 1, 1): 2}, []),  # more than a hundredth
        (counted(*[50] * 800) | {date(2023, 9, 1): 1}, []),  # nearer than the log is long
        (counted(*[50] * 10) | {date(2020, 9, 1): 1}, []),  # less than a year
    ],
)
def test_few_rows_far_from_all_others_are_astray(rows, astray):
    assert list(days_astray(rows)) == astray

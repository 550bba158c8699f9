"""Numbers as people read them."""

import pytest

from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.formatting import number, share_in_words, shift_label, with_interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        (0.0, "0.000"),
        (-0.00001, "0.0000"),
        (0.01234, "0.0123"),
        (0.8284, "0.828"),
        (-12.345, "\N{MINUS SIGN}12.35"),
        (15385.4, "15,385"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_signs_are_shown_where_asked_for():
    assert number(0.5, signed=True) == "+0.500"
    assert number(-0.5, signed=True) == "\N{MINUS SIGN}0.500"


def test_estimates_never_show_an_interval_they_do_not_have():
    assert with_interval(Estimate(0.5, 0.4, 0.6, 9)) == "0.500 [0.400, 0.600]"
    assert with_interval(Estimate(0.5, None, None, 1, "no interval")) == "0.500 no interval"
    assert with_interval(Estimate(None, None, None, 1, "not applicable")) == "n/a"


def test_shifts_in_words():
    assert [shift_label(days) for days in (0, 1, 3, 7, 30)] == [
        "0 days",
        "1 day",
        "3 days",
        "1 week",
        "1 month",
    ]


@pytest.mark.parametrize(
    ("part", "said"), [(8_388, "0.84 %"), (95_000, "9.5 %"), (123_456, "12 %"), (999_000, "99.9 %")]
)
def test_a_share_is_said_in_per_cent_and_never_by_powers_of_ten(part, said):
    assert share_in_words(part, 1_000_000) == f"{part:,} of 1,000,000 requests ({said})"

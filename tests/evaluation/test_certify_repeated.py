"""Durations that a log in whole seconds repeats, and a twin whose seconds are not whole: how far apart is decided."""

import numpy as np
import pytest

from evaluation.certify.answer_lines import equal_where_repeated, often_repeated
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.resampled import Units
from evaluation.certify.samples import Sample
from evaluation.certify.two_samples import Trio, two_sample_lines

NUM_ROWS, NUM_UNITS = 4000, 20


def trio_of(*waits_s: np.ndarray) -> Trio:
    """Waits of log, twin and another day, with a context that says nothing."""
    unit = np.arange(NUM_ROWS) * NUM_UNITS // NUM_ROWS
    context = {"service": np.array(["a", "b"])[np.arange(NUM_ROWS) % 2]}
    real, twin, other = (Units(Sample({"wait": np.log1p(wait_s)}, context), unit) for wait_s in waits_s)
    return Trio(real, twin, other, NUM_UNITS)


def verdicts(trio: Trio) -> dict[str, Verdict]:
    return {line.name: line.verdict for line in two_sample_lines("answers", trio, ("wait",), CertifyConfig())}


def logged(seed: int) -> np.ndarray:
    """Waits in whole seconds: nearly always one or two."""
    return 1.0 + np.random.default_rng(seed).choice([0, 1, 9], NUM_ROWS, p=[0.7, 0.28, 0.02])


@pytest.mark.slow
def test_a_twin_that_is_right_within_one_per_cent_passes_where_the_log_repeats_a_second() -> None:
    about = logged(1) * np.random.default_rng(2).uniform(0.99, 1.01, NUM_ROWS)
    trio = trio_of(logged(0), about, logged(3))
    assert Verdict.FAIL in verdicts(trio).values()  # what was taken for a difference
    assert set(verdicts(equal_where_repeated(trio)).values()) == {Verdict.PASS}


def test_a_constant_wait_with_the_rounding_of_floats_is_no_difference_of_many_deviations() -> None:
    noise = np.random.default_rng(0).uniform(-1e-7, 1e-7, (3, NUM_ROWS))
    trio = equal_where_repeated(trio_of(*(1.0 + noise)))
    (value,) = np.unique(
        np.concatenate([part.sample.continuous["wait"] for part in (trio.real, trio.generated, trio.other)])
    )
    assert value == pytest.approx(np.log(2.0), abs=1e-6)


def test_a_twin_that_is_slower_still_fails() -> None:
    found = verdicts(equal_where_repeated(trio_of(logged(0), logged(1) * 1.2, logged(3))))
    assert found["Kolmogorov-Smirnov distance of wait"] == found["two-sample classifier"] == Verdict.FAIL


def test_what_a_log_does_not_repeat_stays() -> None:
    spread = np.random.default_rng(0).lognormal(3.0, 2.0, (3, NUM_ROWS))
    trio = trio_of(*spread)
    same = equal_where_repeated(trio)
    share = np.mean(same.generated.sample.continuous["wait"] == trio.generated.sample.continuous["wait"])
    assert share > 0.99
    assert not len(often_repeated(np.linspace(0.0, 9.0, 500)))


def test_of_values_within_one_per_cent_the_most_frequent_one_is_kept() -> None:
    column = np.repeat([0.700, 0.705, 2.0, np.nan], [10, 30, 5, 9])
    assert often_repeated(column).tolist() == [0.705, 2.0]

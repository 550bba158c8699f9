"""Intervals: do they cover, does pairing help, do they refuse where there is nothing to go by?"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from evaluation.comparison.bootstrap import (
    DifferenceVerdict,
    Estimate,
    IntervalConfig,
    estimate,
    mean_over_units,
    resampling_units,
    summarise,
    verdict,
    weights_of,
)
from evaluation.comparison.comparison import drawn_over_seeds
from evaluation.comparison.metrics import MEAN_WAIT
from evaluation.comparison.seeds import over_seeds
from logs_schema.errors import ConfigError
from tests.evaluation.made import made_decisions

FEW = IntervalConfig(num_replicates=800)


def paired_difference(statistic, reference, num_units):
    return estimate(lambda weights: statistic(weights) - reference(weights), num_units, FEW)


def mean_of(value):
    def statistic(weights):
        with np.errstate(invalid="ignore"):
            return weights @ value / weights.sum(axis=1)

    return statistic


def coverage(draw, truth, num_units, results=600):
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(results):
        found = estimate(mean_of(draw(generator, num_units)), num_units, FEW)
        hits += found.low <= truth <= found.high
    return hits / results


@pytest.mark.parametrize("num_units", [8, 12, 30])
def test_normal_units_are_covered(num_units):
    found = coverage(lambda generator, size: generator.normal(5.0, 1.0, size), 5.0, num_units)
    assert 0.91 <= found <= 0.98


@pytest.mark.parametrize(("num_units", "least"), [(12, 0.88), (30, 0.90)])
def test_skewed_units_are_covered_nearly(num_units, least):
    found = coverage(lambda generator, size: generator.lognormal(0.0, 0.5, size), np.exp(0.125), num_units)
    assert least <= found <= 0.98


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_training_seeds_are_covered_too(num_seeds):
    """Means of a few seeds drawn with replacement alone cover 68, 81 and 89 % here."""
    generator, config, num_units, hits = np.random.default_rng(3), IntervalConfig(num_replicates=400), 24, 0
    weights = weights_of(num_units, config)
    for _ in range(200):
        of_units, of_seeds = generator.normal(size=num_units), generator.normal(size=num_seeds)
        noise = generator.normal(0.0, 0.1, (num_seeds, num_units))
        values = [mean_of(of_units + seed + row)(weights) for seed, row in zip(of_seeds, noise, strict=True)]
        found = summarise(drawn_over_seeds(values, config), num_units, config)
        hits += found.low <= 0.0 <= found.high
        assert found.value == pytest.approx(np.mean([one[0] for one in values]))
    assert hits / 200 >= 0.92


@pytest.mark.parametrize(("num_units", "num_holding"), [(9, 9), (14, 14), (24, 7)])
def test_intervals_are_scipys_bca_at_the_level_of_students_width(num_units, num_holding):
    """From the same draws: the width of so few units that hold something is that of a higher level of normal ones."""
    config, weights = IntervalConfig(level=0.9), weights_of(num_units, IntervalConfig(level=0.9))
    values = np.random.default_rng(num_units).lognormal(
        size=num_units
    )  # skewed: not symmetric about the mean
    found = summarise(mean_over_units(values)(weights), num_units, config, num_holding=num_holding)
    sample = np.random.default_rng(7).normal(size=num_holding)
    low, high = stats.ttest_1samp(sample, 0.0).confidence_interval(0.9)
    width = (
        (high - low) / 2 / (np.std(sample) / np.sqrt(num_holding))
    )  # in deviations of means drawn with replacement
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=0,
        confidence_level=1.0 - 2.0 * ndtr(-width),
        bootstrap_result=SimpleNamespace(
            bootstrap_distribution=weights[num_units + 1 :] @ values / num_units
        ),
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert found.num_units == num_holding


def test_a_wider_interval_at_a_higher_level():
    statistic = mean_of(np.random.default_rng(0).normal(size=20))
    widths = [
        (found := estimate(statistic, 20, IntervalConfig(level=level))).high - found.low
        for level in (0.5, 0.8, 0.95)
    ]
    assert 0.0 < widths[0] < widths[1] < widths[2]


def test_pairing_cancels_what_both_share():
    generator = np.random.default_rng(1)
    busy = generator.normal(0.0, 10.0, 15)
    first, second = busy + generator.normal(0.5, 0.1, 15), busy + generator.normal(0.0, 0.1, 15)
    paired = paired_difference(mean_of(first), mean_of(second), 15)
    alone = estimate(mean_of(first), 15, FEW)
    assert paired.high - paired.low < 0.1 * (alone.high - alone.low)
    assert verdict(paired, "higher") is DifferenceVerdict.BETTER
    assert verdict(paired, "lower") is DifferenceVerdict.WORSE


@pytest.mark.slow
def test_requests_of_one_day_are_not_counted_as_independent():
    """Twenty requests share each day's load: days as units cover the truth, single requests do not."""
    generator, hits = np.random.default_rng(11), np.zeros(2)
    day = np.repeat(np.arange(12), 20)
    for _ in range(200):
        wait_s = 100.0 + generator.normal(0.0, 20.0, 12)[day] + generator.normal(0.0, 10.0, len(day))
        for column, unit in enumerate((day, np.arange(len(day)))):
            decisions = made_decisions(len(day), arrival_s=np.zeros(len(day)), wait_s=wait_s, unit=unit)
            found = estimate(MEAN_WAIT.statistic(decisions), len(np.unique(unit)), FEW)
            hits[column] += found.low <= 100.0 <= found.high
    by_day, by_request = hits / 200
    assert by_day >= 0.9
    assert by_request <= 0.6


def test_the_difference_of_a_policy_to_itself_is_exactly_zero():
    statistic = mean_of(np.random.default_rng(2).normal(size=10))
    difference = paired_difference(statistic, statistic, 10)
    assert (difference.value, difference.low, difference.high) == (0.0, 0.0, 0.0)
    assert verdict(difference, "higher") is DifferenceVerdict.CANNOT_TELL


@pytest.mark.parametrize("num_units", [1, 2, 5])
def test_too_few_units_give_a_value_but_no_interval(num_units):
    found = estimate(mean_of(np.arange(float(num_units))), num_units, FEW)
    assert found.value == pytest.approx((num_units - 1) / 2)
    assert found.low is None
    assert found.high is None
    assert found.reason.startswith(f"no interval: {num_units} unit")
    assert verdict(found, "higher") is DifferenceVerdict.CANNOT_TELL


def test_no_units_and_undefined_values_say_so():
    assert estimate(mean_of(np.zeros(0)), 0, FEW).reason == "there is nothing to measure"
    undefined = estimate(lambda weights: np.full(len(weights), np.nan), 9, FEW)
    assert undefined.value is None
    assert "no row counts" in undefined.reason
    rare = np.zeros(9)
    rare[0] = 1.0
    with np.errstate(invalid="ignore"):
        found = estimate(lambda weights: weights @ rare / (weights @ rare), 9, FEW)
    assert found.value == 1.0
    assert found.low is None
    assert "too many units" in found.reason


def test_a_statistic_that_is_undefined_too_often_or_without_one_unit_has_no_interval():
    value, config = np.arange(9.0), IntervalConfig()

    def known(is_known):
        return lambda weights: np.where(is_known(weights), weights @ value / 9.0, np.nan)

    often = estimate(known(lambda weights: weights[:, :2].sum(axis=1) > 0.0), 9, config)  # (7 / 9)^9: 10 %
    without_one = estimate(known(lambda weights: np.any(weights != [0.0, *[1.0] * 8], axis=1)), 9, config)
    for found in (often, without_one):
        assert found.value == 4.0
        assert (found.low, found.high) == (None, None)
        assert "too many units" in found.reason
    seldom = estimate(known(lambda weights: weights[:, :3].sum(axis=1) > 0.0), 9, config)  # (6 / 9)^9: 3 %
    assert seldom.low < 4.0 < seldom.high


def test_as_few_units_as_are_wanted_give_an_interval():
    assert estimate(mean_of(np.arange(6.0)), 6, FEW).low is not None


def test_a_statistic_that_no_single_unit_moves_still_has_an_interval():
    value = np.array([0.0] * 5 + [5.0] * 9)

    def median(weights):
        above = weights @ (value > 0.0)
        return np.where(2 * above >= weights.sum(axis=1), 5.0, 0.0)

    found = estimate(median, 14, FEW)
    assert (found.value, found.low, found.high) == (5.0, 0.0, 5.0)
    constant = estimate(lambda weights: np.full(len(weights), 3.0), 14, FEW)
    assert (constant.value, constant.low, constant.high) == (3.0, 3.0, 3.0)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    statistic = mean_of(np.random.default_rng(4).normal(size=10))
    once = estimate(statistic, 10, FEW)
    weights_of.cache_clear()  # drawn again
    assert estimate(statistic, 10, FEW) == once
    assert estimate(statistic, 10, FEW) != estimate(statistic, 10, IntervalConfig(800, seed=1))


@given(st.integers(1, 20))
def test_every_replicate_draws_as_many_units_as_there_are(num_units):
    weights = weights_of(num_units, IntervalConfig(num_replicates=200))
    assert weights.shape == (1 + num_units + 200, num_units)
    np.testing.assert_array_equal(weights[0], 1.0)
    np.testing.assert_array_equal(weights[1 : num_units + 1].sum(axis=1), num_units - 1)
    np.testing.assert_array_equal(weights[num_units + 1 :].sum(axis=1), num_units)


def test_enough_days_are_units_and_few_days_are_cut_into_equal_blocks():
    unit, kind = resampling_units(np.repeat(np.arange(8), 3))
    assert kind == "days"
    assert len(np.unique(unit)) == 8
    assert "blocks" in resampling_units(np.repeat(np.arange(7), 3))[1]
    unit, kind = resampling_units(np.repeat([5, 8], [24, 48]))
    assert "blocks" in kind
    np.testing.assert_array_equal(np.bincount(unit), [2] * 12 + [4] * 12)
    assert np.all(np.diff(unit) >= 0)


def test_blocks_of_interleaved_days_keep_each_day_together():
    unit, _ = resampling_units(np.tile([3, 4], 24))
    np.testing.assert_array_equal(unit[::2], np.arange(24) // 2)
    np.testing.assert_array_equal(unit[1::2], 12 + np.arange(24) // 2)


@pytest.mark.parametrize("wrong", [{"num_replicates": 10}, {"level": 1.0}, {"min_units": 1}])
def test_a_misconfigured_bootstrap_is_refused(wrong):
    with pytest.raises(ConfigError, match="bootstrap"):
        IntervalConfig(**wrong)


def test_a_metric_without_direction_has_no_verdict():
    assert verdict(Estimate(1.0, 0.5, 1.5, 9), "none") is DifferenceVerdict.NO_DIRECTION


def test_means_over_seeds_have_the_interval_of_the_t_test_cut_to_what_can_be():
    values = [0.1, 0.2, 0.7]
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = over_seeds(values)
    assert (found.value, found.low, found.high, found.num_units) == pytest.approx((1 / 3, low, high, 3))
    assert low < 0.0
    assert high > 1.0
    cut = over_seeds(values, within=(0.0, 1.0))
    assert (cut.value, cut.low, cut.high) == (found.value, 0.0, 1.0)
    assert over_seeds([0.5]) == Estimate(0.5, None, None, 1, "no interval: one seed")
    for undefined in ([], [0.5, np.nan]):
        assert over_seeds(undefined).value is None

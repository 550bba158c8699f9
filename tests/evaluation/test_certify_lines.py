"""Verdicts of certificates: same law passes, a known shift fails, a sample too small says so; size and power."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from evaluation.certify import rankings
from evaluation.certify.config import CertifyConfig
from evaluation.certify.family import holm, overall, settled, withholding
from evaluation.certify.lines import (
    Verdict,
    about_zero,
    against_floor,
    against_limit,
    around,
    chance_of,
    not_applicable,
    verdict_of,
)
from evaluation.certify.measures import column_kl, pairwise_kl, two_sample_auc
from evaluation.certify.resampled import (
    Units,
    area_under_curve,
    classifier_auc,
    column_kls,
    distribution_distances,
    kernel_distance,
    mean_of,
    pair_kls,
)
from evaluation.certify.samples import Coding, Sample
from evaluation.certify.two_samples import Trio, pairs_chart, two_sample_lines
from evaluation.comparison.bootstrap import Estimate, IntervalConfig, mean_over_units, weights_of
from evaluation.comparison.metrics import MEAN_WAIT
from tests.evaluation.made import made_decisions
from tests.reference.distances import gaussian_mmd, kolmogorov_smirnov, relative_wasserstein

NUM_UNITS = 24
QUICK = CertifyConfig(num_replicates=200, max_rows=1000)


def table(seed, *, shift=0.0, linked=True, num_rows=2400):
    random = np.random.default_rng(seed)
    kind = random.integers(3, size=num_rows)
    of_wait = kind if linked else random.integers(3, size=num_rows)
    sample = Sample(
        {
            "wait": of_wait + 0.5 * random.normal(size=num_rows) + shift,
            "run": random.exponential(size=num_rows),
        },
        {"service": np.array(["a", "b", "c"])[kind]},
    )
    return Units(sample, np.arange(num_rows) * NUM_UNITS // num_rows)


def trio(seed, **changed):
    return Trio(table(3 * seed), table(3 * seed + 1, **changed), table(3 * seed + 2), NUM_UNITS)


ONCE = np.ones((1, NUM_UNITS))


def test_with_every_unit_once_the_statistics_are_the_measures():
    one, two = table(0), table(1, shift=0.3)
    coding = Coding(one.sample)
    for name, statistic in column_kls(coding, one, two, NUM_UNITS).items():
        assert statistic(ONCE)[0] == pytest.approx(column_kl(coding, one.sample, two.sample)[name])
    pairs = pairwise_kl(coding, one.sample, two.sample)
    for pair, statistic in pair_kls(Coding(one.sample, 8), one, two, NUM_UNITS).items():
        assert statistic(ONCE)[0] == pytest.approx(pairs[pair])
    waits = one.sample.continuous["wait"], two.sample.continuous["wait"]
    distances = distribution_distances(waits[0], one.unit, waits[1], two.unit, NUM_UNITS)
    assert distances[0](ONCE)[0] == pytest.approx(kolmogorov_smirnov(*waits), abs=0.004)
    assert distances[1](ONCE)[0] == pytest.approx(relative_wasserstein(*waits), rel=0.02)
    assert classifier_auc(coding, one, two, seed=0)(ONCE)[0] == pytest.approx(
        two_sample_auc(coding, one.sample, two.sample), abs=0.02
    )


def test_the_resampled_kernel_distance_is_the_unbiased_one():
    one, two = table(0, num_rows=300), table(1, shift=1.0, num_rows=300)
    coding = Coding(one.sample)
    rows = coding.matrix(one.sample), coding.matrix(two.sample)
    apart = ((rows[0][:, None] - rows[0][None]) ** 2).sum(axis=2)
    width = float(np.median(apart[np.triu_indices(300, 1)]))
    told = kernel_distance(coding, one, two, NUM_UNITS)
    assert told(ONCE)[0] == pytest.approx(gaussian_mmd(*rows, width), rel=1e-6)
    half = np.repeat([[1.0, 0.0]], NUM_UNITS // 2, axis=0).reshape(1, -1)
    kept = np.isin(one.unit, np.arange(0, NUM_UNITS, 2))
    assert told(half)[0] == pytest.approx(gaussian_mmd(rows[0][kept], rows[1][kept], width), rel=1e-6)


def test_area_under_the_curve_counts_ties_half_and_units_as_often_as_drawn():
    score, label = np.array([0.1, 0.5, 0.5, 0.9]), np.array([0, 1, 0, 1])
    area = area_under_curve(score, label, np.array([0, 0, 1, 1]))
    assert area(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])).tolist() == [0.875, 1.0, 1.0]


@pytest.mark.parametrize(
    ("bounds", "higher_is_better", "wanted"),
    [
        ((0.1, 0.2), False, Verdict.PASS),
        ((0.2, 0.4), False, Verdict.CANNOT_TELL),
        ((0.31, 0.4), False, Verdict.FAIL),
        ((0.31, 0.4), True, Verdict.PASS),
        ((0.1, 0.2), True, Verdict.FAIL),
        ((0.25, 0.45), True, Verdict.CANNOT_TELL),
        ((0.2, 0.3), False, Verdict.PASS),
        ((0.3, 0.4), True, Verdict.PASS),
    ],
)
def test_a_verdict_is_where_the_interval_lies(bounds, higher_is_better, wanted):
    told = Estimate(sum(bounds) / 2, *bounds, 9)
    assert verdict_of(told, 0.3, higher_is_better=higher_is_better) is wanted
    lone = Estimate(told.value, None, None, 2, "no interval")
    assert verdict_of(lone, 0.3, higher_is_better=higher_is_better) is Verdict.CANNOT_TELL


def test_a_certificate_is_as_good_as_its_worst_line():
    def line(value):
        return against_limit(
            "s", "n", "1", mean_of(np.full(10, value), np.arange(10), 10), 10, 0.5, IntervalConfig(200)
        )

    good, bad, silent = line(0.1), line(0.9), not_applicable("s", "n", "why")
    assert [one.verdict for one in (good, bad)] == [Verdict.PASS, Verdict.FAIL]
    assert overall([good, silent]) is Verdict.PASS
    assert overall([good, bad, silent]) is Verdict.FAIL
    assert overall([silent]) is Verdict.CANNOT_TELL


def lone_line(value, spread, limit=0.5, **said):
    """A mean of twelve units with a value and a spread."""
    values = value + spread * np.linspace(-1.0, 1.0, 12)
    return replace(
        against_limit("s", "n", "1", mean_of(values, np.arange(12), 12), 12, limit, IntervalConfig(200)),
        **said,
    )


def test_only_deciding_lines_must_pass():
    good, unsure = lone_line(0.1, 0.05, deciding=True), lone_line(0.5, 0.1)
    assert unsure.verdict is Verdict.CANNOT_TELL
    assert overall([good, unsure]) is Verdict.PASS
    assert overall([good, replace(unsure, deciding=True)]) is Verdict.CANNOT_TELL
    assert overall([replace(good, deciding=False), unsure]) is Verdict.CANNOT_TELL
    absent = replace(not_applicable("s", "n", "why"), deciding=True)
    assert overall([absent, lone_line(0.1, 0.05)]) is Verdict.CANNOT_TELL


def test_the_lines_that_withhold_a_pass_are_known():
    good, unsure = lone_line(0.1, 0.05, deciding=True), lone_line(0.5, 0.1, name="unsure")
    decides = replace(unsure, deciding=True)
    bad = lone_line(0.9, 0.05, section="beside")
    assert bad.verdict is Verdict.FAIL
    assert withholding([good, unsure]) == []
    assert withholding([good, unsure, decides]) == [decides]
    assert withholding([good, decides, bad]) == [bad]
    assert withholding([good, decides, bad], but_for=("beside",)) == [decides]


def test_holm_rejects_step_by_step_and_no_one_else():
    assert holm([0.01, 0.04, 0.03, np.nan]).tolist() == [True, False, False, False]
    assert holm([0.01, 0.02, 0.04]).tolist() == [True, True, True]
    assert holm([np.nan]).tolist() == [False]
    assert holm([]).tolist() == []


def test_one_line_just_beyond_its_limit_fails_alone_and_not_among_forty():
    beyond = lone_line(0.6, 0.23)
    assert beyond.verdict is Verdict.FAIL
    assert settled([beyond], 3)[0].verdict is Verdict.FAIL
    among = settled([beyond, *(lone_line(0.1, 0.1) for _ in range(39))], 3)
    assert among[0].verdict is Verdict.CANNOT_TELL
    assert "among this many" in among[0].reason
    far = settled([lone_line(176.0, 20.0, limit=7.67), *(lone_line(0.1, 0.1) for _ in range(39))], 3)
    assert far[0].verdict is Verdict.FAIL


@pytest.mark.slow
def test_families_of_lines_at_their_limits_fail_once_in_twenty_at_most():
    random = np.random.default_rng(0)
    intervals = IntervalConfig(200)

    def family():
        columns = 0.5 + 0.3 * random.normal(size=(8, 30))
        lines = [
            against_limit("s", "n", "1", mean_of(one, np.arange(30), 30), 30, 0.5, intervals)
            for one in columns
        ]
        return overall(settled(lines, 3)), overall(lines)

    told = [family() for _ in range(300)]
    assert np.mean([one is Verdict.FAIL for one, _ in told]) < 0.08
    assert np.mean([alone is Verdict.FAIL for _, alone in told]) > 0.12  # what the family is for


def test_what_cannot_be_told_says_how_many_days_would_tell():
    (line,) = settled([lone_line(0.45, 0.3)], 3)
    assert line.verdict is Verdict.CANNOT_TELL
    half = line.judged.value - line.judged.low
    assert line.days == pytest.approx(3 * (half / 0.05) ** 2, abs=1.0)
    assert settled([lone_line(0.5, 0.1)], 3)[0].days is None  # at its limit no number of days tells
    assert settled([lone_line(0.1, 0.05)], 3)[0].days is None
    few = against_limit("s", "n", "1", mean_of(np.ones(2), np.arange(2), 2), 2, 0.5, IntervalConfig(200))
    assert "2 units are fewer than 6" in few.judged.reason
    assert settled([few], 1)[0].days == 3


def test_a_signed_value_is_judged_by_its_size():
    def line(value, **options):
        values = value + 0.01 * np.linspace(-1.0, 1.0, 12)
        return about_zero(
            "s", "n", "1", mean_of(values, np.arange(12), 12), 12, 0.1, IntervalConfig(200), **options
        )

    assert [line(value).verdict for value in (-0.2, 0.0, 0.2)] == [Verdict.FAIL, Verdict.PASS, Verdict.FAIL]
    assert line(-0.2).value.value == pytest.approx(-0.2)
    assert line(-0.2).judged.value == pytest.approx(0.2)
    assert line(-0.2, one_sided=True).verdict is Verdict.PASS
    assert line(0.1).verdict is Verdict.CANNOT_TELL


def test_the_interval_of_a_negative_value_is_turned_round_and_that_of_a_correlation_ends_at_one():
    config = IntervalConfig(200)
    values = -0.4 + 0.25 * np.sqrt(12) * np.tile([-1.0, 1.0], 6) / 2.2
    line = about_zero("s", "n", "1", mean_of(values, np.arange(12), 12), 12, 0.5, config)
    assert (line.value.value, line.judged.value) == pytest.approx((-0.4, 0.4))
    assert (line.judged.low, line.judged.high) == pytest.approx((-line.value.high, -line.value.low))
    assert line.judged.low < 0.4 < 0.5 < line.judged.high
    assert line.verdict is Verdict.CANNOT_TELL
    near = mean_of(1.0 - 0.1 * (np.arange(12) % 6 == 0), np.arange(12), 12)
    told = against_limit("s", "n", "1", near, 12, 0.97, config, higher_is_better=True).judged
    assert told.high == 1.0 < 2.0 * told.value - told.low


def test_too_few_units_give_no_verdict():
    one = mean_of(np.ones(3), np.arange(3), 3)
    line = against_floor("s", "n", "1", one, one, 3, 0.1, IntervalConfig(200))
    assert line.verdict is Verdict.CANNOT_TELL
    assert "fewer than 6" in line.reason
    remarked = about_zero("s", "n", "1", one, 3, 0.1, IntervalConfig(200), reason="1.0 logged")
    assert remarked.reason == "1.0 logged; no interval: 3 units are fewer than 6"


def test_a_limit_that_real_days_miss_among_themselves_fails_no_twin():
    values, units = np.linspace(0.5, 0.6, 12), np.arange(12)
    told = mean_of(values, units, 12)
    args = ("s", "n", "1", told, 12, 0.95, IntervalConfig(200))
    assert against_limit(*args, higher_is_better=True).verdict is Verdict.FAIL
    excused = against_limit(*args, higher_is_better=True, floor=told)
    assert excused.verdict is Verdict.CANNOT_TELL
    assert "among themselves" in excused.reason


def verdicts(changed, seeds):
    found = []
    for seed in seeds:
        lines = two_sample_lines("answers", trio(seed, **changed), ("wait", "run"), QUICK)
        found.append({line.name: line.verdict for line in lines})
    return found


@pytest.mark.slow
def test_size_two_samples_of_one_law_hardly_ever_fail():
    told = verdicts({}, range(4))
    all_of = [verdict for one in told for verdict in one.values()]
    assert len(all_of) == 4 * 9
    assert Verdict.FAIL not in all_of
    assert np.mean([verdict is Verdict.PASS for verdict in all_of]) > 0.6


@pytest.mark.slow
def test_power_a_shift_fails_where_it_is_and_nowhere_else():
    for one in verdicts({"shift": 0.6}, range(2)):
        for name in ("KL of wait", "Kolmogorov-Smirnov distance of wait", "Wasserstein distance of wait"):
            assert one[name] is Verdict.FAIL
        assert one["mean KL of pairs of columns"] is Verdict.FAIL
        assert one["two-sample classifier"] is Verdict.FAIL
        assert one["KL of run"] is not Verdict.FAIL


def test_power_a_lost_link_passes_the_columns_and_fails_the_pairs():
    (one,) = verdicts({"linked": False}, [0])
    assert one["KL of wait"] is not Verdict.FAIL
    assert one["mean KL of pairs of columns"] is Verdict.FAIL
    assert one["two-sample classifier"] is Verdict.FAIL


def test_columns_that_say_little_are_named():
    parts = [
        Units(
            Sample(
                {"wait": np.where(np.arange(600) < 20, 1.0, np.nan), "run": np.ones(600)},
                {"service": np.repeat(["a", "b"], 300)},
            ),
            np.arange(600) // 50,
        )
        for _ in range(3)
    ]
    lines = two_sample_lines("answers", Trio(*parts, 12), ("wait", "run"), QUICK)
    told = {line.name: line for line in lines}
    assert told["wait"].verdict is Verdict.NOT_APPLICABLE
    assert "fewer than 50" in told["wait"].reason
    assert told["KL of run"].reason == "log and twin hold one value only"
    assert told["KL of run"].verdict is Verdict.NOT_APPLICABLE  # a line that could only pass
    assert not any("distance of run" in name for name in told)


def test_intervals_of_excess_hold_the_truth_as_often_as_they_say():
    """The mean of the twin's distance is known: two normal laws 0.5 apart, whose Kolmogorov distance is 0.1974."""
    config, held, num_trials = IntervalConfig(200), 0, 60
    for result in range(num_trials):
        random = np.random.default_rng(result)
        unit = np.repeat(np.arange(NUM_UNITS), 40)
        one, two, other = (random.normal(size=len(unit)) + shift for shift in (0.0, 0.5, 0.0))
        measured, _ = distribution_distances(one, unit, two, unit, NUM_UNITS)
        floor, _ = distribution_distances(one, unit, other, unit, NUM_UNITS)
        line = against_floor("s", "n", "1", measured, floor, NUM_UNITS, 0.1, config)
        held += line.judged.low <= 0.1974 - 0.04 <= line.judged.high  # 0.04: what the floor is on average
    assert held / num_trials > 0.8


@pytest.mark.parametrize("num_units", [6, 12])
def test_the_interval_of_a_mean_is_students(num_units):
    values, config = np.random.default_rng(0).normal(size=num_units), IntervalConfig(20_000)
    told = around(mean_over_units(values)(weights_of(num_units, config)), num_units, config)
    low, high = stats.t.interval(config.level, num_units - 1, values.mean(), stats.sem(values))
    assert told.high - told.low == pytest.approx(high - low, rel=0.02)
    chance = chance_of(told, 0.0, config, higher_is_better=False)
    assert chance == pytest.approx(stats.ttest_1samp(values, 0.0, alternative="greater").pvalue, abs=0.005)


def test_every_pair_is_shown_and_the_lost_link_comes_first():
    chart = pairs_chart(trio(0, linked=False), ("wait", "run"))
    assert chart.note.startswith("1 wait and service; ")
    twin, floor = chart.curves
    assert len(twin.x) == 3
    assert twin.y[0] > 0.3 > floor.y[0]


@pytest.mark.parametrize(("num_holding", "covered"), [(3, None), (6, 0.93)])
def test_units_that_hold_nothing_are_not_counted(num_holding, covered):
    """Of 36 parts of the day few have requests; counted as 36, three would cover 81 % and six 89 %."""
    random, config, hits = np.random.default_rng(0), IntervalConfig(400), []
    for _ in range(300):
        values = np.full(36, np.nan)
        values[:num_holding] = random.normal(size=num_holding)
        found = around(mean_of(values, np.arange(36), 36)(weights_of(36, config)), 36, config)
        assert found.num_units == num_holding
        hits.append(found.low is not None and found.low <= 0.0 <= found.high)
    assert (found.low is None) == (covered is None)
    assert covered is None or np.mean(hits) >= covered
    same = around(mean_over_units(np.full(36, 0.3))(weights_of(36, config)), 36, config)
    assert (same.num_units, same.low) == (36, pytest.approx(0.3))


def test_policies_that_the_truth_cannot_rank_fail_no_twin(monkeypatch):
    """Where policies are worth nearly the same, chance ranks them in the twin and in the truth; where they are not, a
    twin that ranks them otherwise fails."""
    random, names = np.random.default_rng(0), [f"policy {number}" for number in range(14)]

    def told(worth, in_twin):
        def values(*_, **__):
            noise = random.normal(0.0, 0.003, (4, 14))
            true = worth + noise[0]
            return names, in_twin + noise[1], true, np.zeros(14, bool), worth + noise[2:]

        monkeypatch.setattr(rankings, "policy_values", values)
        archive = SimpleNamespace(facts={"ground_truth": {}})
        twin = SimpleNamespace(encoding=SimpleNamespace(cluster=SimpleNamespace(num_nodes=2)))
        day = SimpleNamespace(day="2024-01-05")
        return rankings.ranking_lines(archive, twin, lambda: day, CertifyConfig(num_replicates=200))[0][0]

    alike = [told(np.full(14, 0.9), np.full(14, 0.9)) for _ in range(2)]
    assert max(line.value.value for line in alike) < 0.9  # far from what a line asks for
    assert all(line.verdict is Verdict.CANNOT_TELL and line.chance is None for line in alike)
    apart = np.linspace(0.5, 0.95, 14)
    assert told(apart, apart[::-1]).verdict is Verdict.FAIL
    unit = np.repeat(np.arange(4), 10)
    decisions = made_decisions(40, unit=unit, wait_s=10.0 * unit)
    assert rankings._in_halves(MEAN_WAIT, decisions).tolist() == [10.0, 20.0]

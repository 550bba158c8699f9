"""Comparisons: paired, honest about what is missing, and the same after a round trip through JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from evaluation.api import Compared
from evaluation.comparison import metrics
from evaluation.comparison.bootstrap import SHARE, DifferenceVerdict, IntervalConfig, summarise, weights_of
from evaluation.comparison.comparison import Comparison, compare, drawn_over_seeds
from evaluation.comparison.decisions import concatenate
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.tabulation import printed, tabulate
from evaluation.comparison.unit_values import UnitValues, with_judge
from logs_schema.errors import ConfigError, SchemaError
from logs_schema.records import from_plain
from tests.evaluation.made import made_decisions

CONFIG = IntervalConfig(num_replicates=400)


def judged(late_share, *, num_units=10, seed=0, **columns):
    """Decisions of which about `late_share` miss their deadline, harder on some units than on others."""
    generator = np.random.default_rng(seed)
    unit = np.repeat(np.arange(num_units), 40)
    hard = np.linspace(0.0, 0.3, num_units)[unit]
    late = np.random.default_rng(99).random(len(unit)) < late_share + hard
    wait_s = np.where(late, 500.0, generator.uniform(0.0, 50.0, len(unit)))
    return made_decisions(len(unit), unit=unit, wait_s=wait_s, agent=unit % 3, **columns)


def compared(runs, **options):
    names = list(dict.fromkeys(run.policy for run in runs))
    shifts = sorted({run.shift_days for run in runs})
    return compare(
        runs,
        archive={"name": "made up"},
        train_days=["2030-01-01"],
        unit_kind="days",
        judges=[JudgeFacts("replay", "made up")],
        config=CONFIG,
        **{
            "policies": [PolicyFacts(name, "baseline", name) for name in names],
            "shifts": [ShiftFacts(shift, ("2030-01-02",), 400) for shift in shifts],
        }
        | options,
    )


def two_policies(**columns):
    return [
        Run("replay", 0, "random", judged(0.5, **columns)),
        Run("replay", 0, "trained", judged(0.1, seed=1, **columns), agreement=0.4, num_overflow=3),
    ]


@pytest.mark.parametrize(
    "missing", [{}, {"deadlines": "no request has a deadline", "sites": "there is only one site"}]
)
def test_values_are_the_metrics_own_and_differences_are_theirs(missing):
    runs = two_policies(missing=missing)
    found = compared(runs)
    assert {need for metric in metrics.METRICS for need in metric.needs} > missing.keys()
    for metric in metrics.METRICS:
        values = [metric.compute(run.decisions) for run in runs]
        for run, value in zip(runs, values, strict=True):
            estimate = found.cell("replay", 0, run.policy, metric.name)
            if isinstance(value, metrics.NotApplicable):
                assert estimate.value is None
                assert estimate.reason == value.reason
            else:
                assert estimate.value == pytest.approx(value)
                assert estimate.low <= estimate.value <= estimate.high
        difference = found.difference("replay", 0, "trained", "random", metric.name)
        assert (difference is None) == isinstance(values[0], metrics.NotApplicable)
        if difference is not None:
            assert difference.estimate.value == pytest.approx(values[1] - values[0])


def test_a_clearly_better_policy_is_called_better_whichever_way_the_metric_points():
    found = compared(two_policies())
    assert found.difference("replay", 0, "trained", "random", "on_time").verdict is DifferenceVerdict.BETTER
    assert found.difference("replay", 0, "trained", "random", "mean_wait").verdict is DifferenceVerdict.BETTER
    assert (
        found.difference("replay", 0, "trained", "random", "utilisation").verdict
        is DifferenceVerdict.NO_DIRECTION
    )
    assert found.difference("replay", 0, "random", "random", "on_time") is None


def test_pairing_makes_the_difference_surer_than_either_value():
    found = compared(two_policies())
    gap = found.difference("replay", 0, "trained", "random", "on_time").estimate
    alone = found.cell("replay", 0, "trained", "on_time")
    assert gap.high - gap.low < alone.high - alone.low


def test_the_main_metric_is_the_first_that_every_run_can_say():
    assert compared(two_policies()).main_metric == "on_time"
    without = compared(two_policies(missing={"deadlines": "no request has a deadline"}))
    assert without.main_metric == "mean_log_response"
    assert without.cell("replay", 0, "trained", "on_time").reason == "no request has a deadline"
    assert without.difference("replay", 0, "trained", "random", "on_time") is None


def test_different_units_are_refused():
    runs = [Run("replay", 0, "a", judged(0.1)), Run("replay", 0, "b", judged(0.1, num_units=9))]
    with pytest.raises(ConfigError, match="different units") as caught:
        compared(runs)
    assert "b and a" in str(caught.value)


def test_no_run_is_refused():
    with pytest.raises(ConfigError, match="no policy was judged") as caught:
        compared([], shifts=[ShiftFacts(7, (), None, "the log is too short")])
    assert caught.value.where == "the log is too short"
    assert caught.value.allowed


def test_a_table_of_an_unknown_metric_is_refused_with_those_that_are_known():
    found = Compared(compared(two_policies()))
    with pytest.raises(ConfigError, match="no metric 'on_tme'") as caught:
        found.table("on_tme")
    assert "on_time" in caught.value.allowed
    assert "replay" in found.table("on_time")


def test_censored_and_overflown_requests_are_counted():
    (_, tally) = compared(two_policies()).tallies
    assert (tally.num_decisions, tally.num_overflow, tally.agreement) == (400, 3, 0.4)
    censored = replace(judged(0.1), settled=np.arange(400) >= 7)
    assert compared([Run("replay", 0, "a", censored)]).tallies[0].num_censored == 7


def test_json_round_trip():
    found = compared(two_policies(), notes=["a note"])
    text = json.dumps(found.to_json(), allow_nan=False)
    assert Comparison.from_json(json.loads(text)) == found


def test_json_of_another_version_is_refused():
    data = compared(two_policies()).to_json()
    del data["cells"][0]["policy"]
    with pytest.raises(SchemaError, match="not a Cell") as caught:
        from_plain(Comparison, data)
    assert "cells[0]: missing ['policy']" in str(caught.value)


def test_the_terminal_shows_values_intervals_and_what_cannot_be_said():
    found = compared([*two_policies(), Run("replay", 7, "random", judged(0.5))])
    console = Console(width=160)
    with console.capture() as captured:
        console.print(tabulate(found))
    text = captured.get()
    value = found.cell("replay", 0, "trained", "on_time")
    assert f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}] +" in text
    assert "1 week" in text
    (row,) = [line for line in text.splitlines() if "trained" in line and "0." in line]
    assert "n/a" in row


def test_the_terminal_says_why_a_judge_is_missing_and_leaves_other_notes_to_the_report():
    found = compared(two_policies(), judge_notes=("shift 0d: no twin of these days",), notes=("other",))
    shown = printed(tabulate(found))
    assert "note: shift 0d: no twin of these days" in shown
    assert "note: other" not in shown


def test_seeds_that_differ_widen_the_interval_but_not_the_value():
    seeds = tuple(judged(share, seed=4) for share in (0.05, 0.15, 0.25, 0.35, 0.45))
    joined = concatenate(seeds)
    one = compared([Run("replay", 0, "trained", joined)]).cell("replay", 0, "trained", "on_time")
    drawn = compared([Run("replay", 0, "trained", joined, by_seed=seeds)]).cell(
        "replay", 0, "trained", "on_time"
    )
    assert drawn.value == pytest.approx(one.value)
    assert drawn.high - drawn.low > 1.2 * (one.high - one.low)


def test_intervals_over_two_seeds_stay_where_shares_and_times_can_be():
    seeds, none = (judged(0.02, seed=4), judged(0.5, seed=4)), (judged(0.0, seed=4),) * 2
    each = {"random": none, "trained": seeds}
    found = compared(
        [Run("replay", 0, name, concatenate(by_seed), by_seed=by_seed) for name, by_seed in each.items()]
    )
    found = with_judge(
        found,
        JudgeFacts("ours", ""),
        {
            (0, name): [UnitValues({"on_time": np.full(8, value)}) for value in pair]
            for name, pair in {"random": (1.0, 1.0), "trained": (0.98, 0.1)}.items()
        },
        IntervalConfig(),
    )
    for judge in ("replay", "ours"):
        trained = found.cell(judge, 0, "trained", "on_time")
        assert 0.0 == trained.low < trained.value < trained.high == 1.0  # stretched over two seeds, and cut
        gap = found.difference(judge, 0, "trained", "random", "on_time").estimate
        assert -1.0 == gap.low < gap.value < gap.high
    bounded = [one for one in found.cells if one.estimate.low is not None]
    units = {metric.name: metric.unit for metric in found.metrics}
    assert all(one.estimate.low >= 0.0 for one in bounded if units[one.metric] in ("share", "s"))
    shares = [
        one.estimate for one in bounded if units[one.metric] == "share" or one.metric == "jain_fairness"
    ]
    assert all(one.high <= max(1.0, one.value) for one in shares)
    beyond = summarise(
        np.concatenate([[1.2], np.full(8, 1.2), np.linspace(0.9, 1.6, 400)]), 8, IntervalConfig(), SHARE
    )
    assert beyond.high == 1.2  # what lies beyond is not hidden


def test_units_of_a_judge_count_where_some_seed_has_weight_and_gaps_where_both_policies_have():
    random, at = np.random.default_rng(0), np.arange(20)
    weights = {"random": [at < 9, at < 9], "trained": [at < 12, (at >= 4) & (at < 14)]}
    found = with_judge(
        compared([Run("replay", 7, run.policy, run.decisions) for run in two_policies()]),
        JudgeFacts("ours", ""),
        {
            (7, name): [UnitValues({"on_time": random.uniform(0.4, 0.6, 20)}, 3.0 * one) for one in each]
            for name, each in weights.items()
        },
        CONFIG,
    )
    assert found.cell("ours", 7, "random", "on_time").num_units == 9
    assert found.cell("ours", 7, "trained", "on_time").num_units == 14
    gap = found.difference("ours", 7, "trained", "random", "on_time").estimate
    values = [found.cell("ours", 7, name, "on_time").value for name in ("trained", "random")]
    assert (gap.value, gap.num_units) == (pytest.approx(values[0] - values[1]), 9)
    assert found.difference("ours", 0, "trained", "random", "on_time") is None


def test_seeds_are_drawn_alike_for_all_policies_and_not_for_exact_values():
    num_units, random = 10, np.random.default_rng(0)
    weights = weights_of(num_units, CONFIG)
    seeds = [weights @ random.normal(size=num_units) / num_units + shift for shift in (0.0, 1.0, 5.0)]
    drawn = drawn_over_seeds(seeds, CONFIG)
    np.testing.assert_allclose(drawn[: 1 + num_units], np.mean(seeds, axis=0)[: 1 + num_units])
    assert np.ptp(drawn[1 + num_units :]) > 2.0
    better = drawn_over_seeds([one + 0.25 for one in seeds], CONFIG)
    np.testing.assert_allclose(better - drawn, 0.25)  # seeds are paired, as units are


def test_references_begin_with_imitation_and_the_main_metric_has_a_direction():
    runs = [Run("replay", 0, name, judged(0.2)) for name in ("rule", "log", "cloned", "trained")]
    kinds = {"rule": "baseline", "log": "history", "cloned": "imitation"}
    found = compared(
        runs,
        policies=[PolicyFacts(run.policy, kinds.get(run.policy, "trained"), "") for run in runs],
        references=("rule", "log", "cloned"),
        metrics=(metrics.UTILISATION, metrics.MEAN_WAIT),
    )
    assert found.references() == ["cloned", "log", "rule"]
    assert found.reference() == "cloned"
    assert replace(found, lead_reference="rule").reference() == "rule"
    assert found.main_metric == "mean_wait"


def test_seeds_that_agree_change_nothing():
    seeds = (judged(0.2, seed=4),) * 3
    one = compared([Run("replay", 0, "trained", seeds[0])]).cell("replay", 0, "trained", "on_time")
    drawn = compared([Run("replay", 0, "trained", concatenate(seeds), by_seed=seeds)])
    found = drawn.cell("replay", 0, "trained", "on_time")
    assert (found.value, found.low, found.high) == pytest.approx((one.value, one.low, one.high))

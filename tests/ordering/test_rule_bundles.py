"""Published rules in bundles: they decide as the rules do, and replace an index that is worse."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import Cell, Difference, JudgeFacts, MetricFacts, PolicyFacts, ShiftFacts
from evaluation.comparison.report.roles import strong_policies
from evaluation.problems.ordering.exported_order import winner_of, with_exported_last
from evaluation.problems.ordering.exporting import QueueBundle, export_rule, policy_of_bundle
from evaluation.problems.ordering.fixed_orders import OWN_BACKFILL, fixed_order
from logs_schema.errors import ConfigError, ProductError
from offline_rl.ordering.programs import OrderTrainingConfig
from offline_rl.runner import RunningJob, WaitingJob, load_queue
from offline_rl.runner.queue_rules import SCORES, places
from tests.ordering.test_learning_weeks import busy_log
from twin.ordering.replay import replay
from twin.ordering.rules import RULES, Waiting
from twin.ordering.types import Pool

DAYS = {"first_day": "2001-09-01", "last_day": "2001-09-28", "num_days": 28}
ORIGIN_S = 1_001_721_600.0  # 2001-09-29
BY_NAME = {rule.name: rule for rule in RULES}


def drawn_queue(rng, num_jobs=40):
    """Waiting jobs with ties, in order of arrival, and the instant of the decision."""
    arrival_s = ORIGIN_S + np.sort(rng.integers(-3600, 864_000, num_jobs)).astype(float)
    processors, requested_s = 2.0 ** rng.integers(0, 5, num_jobs), 600.0 * rng.integers(1, 9, num_jobs)
    return arrival_s, processors, requested_s, float(arrival_s[-1] + rng.integers(0, 9))


@pytest.mark.parametrize("name", SCORES)
def test_places_are_those_of_the_rule(name):
    rng = np.random.default_rng(1)
    for _ in range(50):
        arrival_s, processors, requested_s, now_s = drawn_queue(rng)
        jobs = {"arrival_s": arrival_s - ORIGIN_S, "wait_s": now_s - arrival_s}
        found = places({"rule": name}, jobs | {"processors": processors, "requested_s": requested_s})
        waiting = Waiting(arrival_s - ORIGIN_S, processors, requested_s, np.full(len(arrival_s), np.nan))
        score = BY_NAME[name].score(waiting, now_s - ORIGIN_S)
        np.testing.assert_array_equal(np.argsort(found), np.argsort(score, kind="stable"))
    assert set(SCORES) == set(OWN_BACKFILL) == set(BY_NAME) - {"logged_order"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rule") / "bundle"
    bundle = QueueBundle(Pool(16.0, name="fast"), OrderTrainingConfig(), DAYS | {"pool": "fast"})
    export_rule(fixed_order("f1+easy"), folder, bundle)
    return folder


@pytest.mark.parametrize("backend", ["numpy", "onnx"])
def test_a_bundle_takes_the_first_of_its_rule(bundle, backend):
    policy, rng = load_queue(bundle, backend), np.random.default_rng(2)
    assert (policy.setting["rule"], policy.setting["rule_origin_s"], policy.setting["backfill"]) == (
        "f1",
        ORIGIN_S,
        "by_f1",
    )
    for _ in range(30):
        arrival_s, processors, requested_s, now_s = drawn_queue(rng)
        jobs = [WaitingJob(*job) for job in zip(arrival_s, processors, requested_s, strict=True)]
        waiting = Waiting(arrival_s - ORIGIN_S, processors, requested_s, np.full(len(jobs), np.nan))
        expected = int(np.argmin(BY_NAME["f1"].score(waiting, now_s - ORIGIN_S)))
        assert policy.decide(jobs, [RunningJob(3.0, now_s + 9.0)], {}, now_s) == expected


def test_a_bundle_of_a_rule_chooses_among_all_that_wait_however_many(tmp_path):
    export_rule(
        fixed_order("saf+easy"), tmp_path / "saf", QueueBundle(Pool(16.0), OrderTrainingConfig(), DAYS)
    )
    policy = load_queue(tmp_path / "saf")
    arrival_s, processors, requested_s, now_s = drawn_queue(np.random.default_rng(3), 600)
    processors[-1], requested_s[-1] = 1.0, 60.0
    jobs = [WaitingJob(*job) for job in zip(arrival_s, processors, requested_s, strict=True)]
    first = np.argsort(processors * requested_s, kind="stable")
    assert first[0] >= len(policy.policy.contract.choices)
    assert policy.decide(jobs, [], {}, now_s) == first[0]
    started = policy.starting(jobs, [], {}, now_s)
    assert started == first[: len(started)].tolist()
    assert sum(processors[place] for place in started) == 16.0


def test_a_bundle_of_a_rule_is_played_by_replay(bundle):
    policy, pool = policy_of_bundle(bundle)
    assert (policy.name, pool.processors, pool.easy, pool.name) == ("f1+easy", 16.0, True, "fast")
    jobs = busy_log(num_days=7)
    assert np.isfinite(replay(jobs, pool, BY_NAME["f1"]).start_s).all()


def test_a_rule_that_no_bundle_can_hold_is_refused():
    with pytest.raises(ConfigError, match="'logged_order' is no rule that a bundle can hold"):
        fixed_order("logged_order")
    with pytest.raises(ConfigError, match="no rule that a bundle can hold"):
        fixed_order("guessed(1,1,1)")
    assert fixed_order("f1+easy")[1:] == (BY_NAME["f1"], True)
    assert fixed_order("f1")[1:] == (BY_NAME["f1"], False)
    with pytest.raises(ProductError, match="unknown here"):
        places({"rule": "lottery"}, {"wait_s": np.zeros(2)})


def told(verdicts, means, **chosen):
    """A comparison that says so of the index: reference -> verdict by shift, and rule -> mean slowdown."""
    shifts = (0, 7)
    nothing = Estimate(0.0, None, None, 8, "")
    named = {rule if rule == "ladder" else f"{rule}+easy": both for rule, both in verdicts.items()}
    differences = tuple(
        Difference("replay", shift, "index", other, "bounded_slowdown", nothing, said)
        for other, both in named.items()
        for shift, said in zip(shifts, both, strict=False)
    )
    cells = tuple(
        Cell("replay", shift, f"{rule}+easy", "bounded_slowdown", Estimate(mean, None, None, 8, ""))
        for rule, mean in means.items()
        for shift in shifts
    )
    facts = tuple(ShiftFacts(shift, ("2001-09-30",), 9) for shift in shifts)
    return Comparison(chosen, (), "", 0.95, "bounded_slowdown", (), (), facts, (), cells, differences, ())


WORSE, BETTER, LEVEL = DifferenceVerdict.WORSE, DifferenceVerdict.BETTER, DifferenceVerdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("verdicts", "means", "rule", "said"),
    [
        ({"f1": (LEVEL, WORSE), "saf": (WORSE, WORSE)}, {"f1": 9.0, "saf": 12.0}, "f1", "week; worse than saf+easy"),
        ({"f1": (LEVEL, WORSE), "sjf": (BETTER, LEVEL)}, {"f1": 9.0, "sjf": 2.0}, "f1", "not the index"),
        ({"f1": (BETTER, WORSE)}, {"f1": 9.0}, None, "the index"),
        ({"logged_order": (WORSE, WORSE), "f1": (LEVEL, LEVEL)}, {"f1": 9.0}, None, "no rule with EASY does better at"),
    ],
)  # fmt: skip
def test_a_rule_that_is_better_is_handed_over_in_place_of_the_index(verdicts, means, rule, said):
    winner = winner_of(told(verdicts, means))
    assert winner.rule == (rule and f"{rule}+easy")
    assert said in winner.words


@pytest.mark.parametrize(
    ("verdicts", "order", "rule"),
    [
        ((BETTER, LEVEL), "saf+easy", None),
        ((BETTER, WORSE), "saf+easy", "saf+easy"),
        ((LEVEL, LEVEL), "predicted(0.5,0.5,0.06)", "predicted(0.5,0.5,0.06)"),
        ((), "saf", "saf"),
    ],
)
def test_the_ladder_s_order_is_handed_over_unless_the_index_is_surely_better(verdicts, order, rule):
    winner = winner_of(told({"ladder": verdicts}, {}, ladder=order, best_rule="saf+easy"))
    assert (winner.rule, winner.fallback) == (rule, "saf+easy")
    assert order in winner.words or rule is None


def test_the_ladder_s_index_is_handed_over_with_its_exponents():
    winner = winner_of(
        told({"ladder": (LEVEL, LEVEL)}, {}, ladder="index(0.5,1,0,1,0.06)", best_rule="saf+easy")
    )
    assert (winner.rule, winner.fallback) == (None, "saf+easy")
    np.testing.assert_array_equal(winner.exponents, [0.5, 1.0, 0.0, 1.0, 0.06])
    own = winner_of(
        told({"ladder": (BETTER, LEVEL)}, {}, ladder="index(0.5,1,0,1,0.06)", best_rule="saf+easy")
    )
    assert own.exponents is None  # the index of the comparison was surely better


@pytest.mark.parametrize(("verdicts", "last"), [((BETTER, LEVEL), "index"), ((LEVEL, LEVEL), "ladder")])
def test_reports_name_what_is_exported(verdicts, last):
    kinds = {"ladder": "trained", "sjf+easy": "baseline", "ppo": "trained", "index": "trained"}
    policies = tuple(PolicyFacts(name, kind, "") for name, kind in kinds.items())
    found = told({"ladder": verdicts}, {}, ladder="index(0.5,1,0,1,0.06)", best_rule="sjf+easy")
    comparison = with_exported_last(
        replace(
            found,
            policies=policies,
            judges=(JudgeFacts("replay", ""),),
            metrics=(MetricFacts("bounded_slowdown", "1", "lower", ""),),
        )
    )
    assert {one.policy: one.role for one in strong_policies(comparison)}[last] == "exported by training"

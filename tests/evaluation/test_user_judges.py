"""Anyone's judge stands beside ours; one that fails is left out by its name, and takes nobody along."""

import datetime as dt
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import JudgedDays, UnitValues
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.metrics import ON_TIME
from evaluation.comparison.report import Report, write_report
from evaluation.comparison.tabulation import printed, tabulate
from evaluation.judges.host_policy import HostPolicy
from evaluation.judges.judge import Candidate
from evaluation.judges.players import HISTORY, as_logged, of_policy
from evaluation.judges.read_only import read_only
from evaluation.judges.user_judges import UserJudge, judged_by_users, named_judges
from evaluation.problems.kit import Kit
from evaluation.problems.kits import KITS
from evaluation.problems.placement.judging_days import JudgedPolicy, judged_policies
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from tests.evaluation.made import made_decisions
from tests.ordering.making import jobs_of
from twin.autoscaling.scaling_log import ScalingLog

NUM_UNITS = 14
INTERVALS = IntervalConfig(num_replicates=300)
TRUE = {"rule": 0.4, "good": 0.1, "worse": 0.3, "seeds": 0.2}
"""Share of requests that each policy lets end late in the truth."""


def in_truth() -> Comparison:
    unit = np.repeat(np.arange(NUM_UNITS), 60)
    luck = np.random.default_rng(0).random(len(unit))
    runs = [
        Run("truth", 0, name, made_decisions(len(unit), unit=unit, wait_s=np.where(luck < late, 400.0, 10.0)))
        for name, late in TRUE.items()
    ]
    return compare(
        runs,
        archive={},
        train_days=[],
        unit_kind="days",
        policies=[PolicyFacts(name, "rule" if name == "rule" else "user", "") for name in TRUE],
        judges=[JudgeFacts("truth", "")],
        shifts=[ShiftFacts(0, (), 0)],
        metrics=(ON_TIME,),
        references=("rule",),
        config=INTERVALS,
    )


DAYS = JudgedDays(
    cast(Archive, None), None, 0, (dt.date(2026, 1, 1),), jax.random.key(0), lambda: np.arange(NUM_UNITS)
)
POLICIES = {name: [lambda late=late: late] for name, late in TRUE.items()} | {
    "seeds": [lambda: 0.1, lambda: 0.3],
    "unknown": [lambda: 0.0],
}


def knowing(policy: Any, days: JudgedDays) -> UnitValues:
    """What a model of mine expects.

    More about it.
    """
    busy = 0.02 * np.sin(days.history())
    return UnitValues({"on_time": 1.0 - policy() + busy}, 1.0 + days.history())


def judged(**judges: UserJudge) -> Comparison:
    return judged_by_users(in_truth(), judges, POLICIES, [DAYS], INTERVALS, SilentProgress())


@pytest.fixture(scope="module")
def found() -> Comparison:
    return judged(mine=knowing)


def test_values_are_weighted_means_with_intervals_and_paired_differences(found: Comparison) -> None:
    weight = 1.0 + np.arange(NUM_UNITS)
    busy = np.average(0.02 * np.sin(np.arange(NUM_UNITS)), weights=weight)
    good = found.cell("mine", 0, "good", "on_time")
    assert good is not None
    assert good.value == pytest.approx(0.9 + busy)
    assert good.low is not None
    assert good.high is not None
    assert good.low < 0.9 + busy < good.high
    gap = found.difference("mine", 0, "good", "rule", "on_time")
    assert gap is not None
    assert (gap.verdict.value, gap.estimate.value) == ("better", pytest.approx(0.3))
    assert gap.estimate.high == pytest.approx(gap.estimate.low)  # what units share cancels
    assert found.cell("mine", 0, "unknown", "on_time") is None


def test_units_without_weight_are_no_evidence() -> None:
    """A judge that sees a policy in three windows of 40 gives a value and no interval, one that sees six the interval
    of six; counted as 40, three cover 81 % and six 89 %."""
    random, hits = np.random.default_rng(0), []

    def seeing(number: int) -> Comparison:
        draws = {name: random.normal(0.5, 0.01, 40) for name in TRUE}

        def judge(policy: Any, days: JudgedDays) -> UnitValues:
            name = next(name for name, late in TRUE.items() if late == policy())
            return UnitValues({"on_time": draws[name]}, 1.0 * (np.arange(40) < number))

        policies = {name: [lambda late=late: late] for name, late in TRUE.items()}
        config = IntervalConfig(num_replicates=200)
        return judged_by_users(in_truth(), {"mine": judge}, policies, [DAYS], config, SilentProgress())

    few = seeing(3)
    told, gap = few.cell("mine", 0, "good", "on_time"), few.difference("mine", 0, "good", "rule", "on_time")
    assert told is not None
    assert gap is not None
    assert (told.num_units, told.low, gap.estimate.low) == (3, None, None)
    for _ in range(50):
        six = seeing(6)
        hits += [
            one.estimate.low <= 0.5 <= one.estimate.high
            for one in six.cells
            if one.judge == "mine" and one.estimate.low is not None and one.estimate.high is not None
        ]
    assert len(hits) == 200
    assert np.mean(hits) > 0.91


def test_a_judge_that_writes_into_the_log_changes_nothing_for_the_others(found: Comparison) -> None:
    def writes(_policy: Any, days: JudgedDays) -> UnitValues:
        days.history()[:] = 1.0
        return UnitValues({"on_time": np.ones(NUM_UNITS)})

    both = judged(writes=writes, mine=knowing)
    assert "read-only" in both.refused["judge writes"]
    assert both.cell("mine", 0, "good", "on_time") == found.cell("mine", 0, "good", "on_time")


def test_what_judges_share_is_the_same_but_unwritable() -> None:
    jobs = jobs_of((0, 1, 9, 9), (5, 2, 9, 9))
    (seen,) = read_only([jobs])
    assert type(seen) is type(jobs)
    np.testing.assert_array_equal(seen.arrival_s, jobs.arrival_s)
    with pytest.raises(ValueError, match="read-only"):
        seen.arrival_s[0] = 3.0
    jobs.arrival_s[0] = 0.5  # ours is as writable as before
    log = ScalingLog(("a",), 60.0, np.zeros(2), {"replicas": np.ones((2, 1))}, {}, ())
    with pytest.raises(ValueError, match="read-only"):
        read_only(log).columns["replicas"][0] = 3.0


def test_an_interval_of_several_seeds_is_over_seeds_too(found: Comparison) -> None:
    seeds, one = found.cell("mine", 0, "seeds", "on_time"), found.cell("mine", 0, "good", "on_time")
    assert seeds is not None
    assert one is not None
    assert seeds.value == pytest.approx(one.value - 0.1)
    assert seeds.high - seeds.low > 5 * (one.high - one.low)


def test_it_stands_in_tables_json_report_and_is_held_against_the_truth(
    found: Comparison, tmp_path: Path
) -> None:
    assert [one.name for one in found.judges] == ["truth", "mine"]
    assert found.judges[1].description == "What a model of mine expects."
    (trust,) = [one for one in found.trust if one.judge == "mine"]
    assert (trust.rank_correlation, trust.num_policies) == (1.0, 4)
    assert trust.error == pytest.approx(0.0, abs=0.02)
    assert Comparison.from_json(found.to_json()) == found
    table = printed(tabulate(found))
    assert "judged by mine" in table
    assert table.count("good") == 2
    write_report(Report("mine", found), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "judged by mine" in page
    assert "What a model of mine expects." in page


def raises(policy: Any, days: JudgedDays) -> UnitValues:
    raise RuntimeError("no model today")


def breaks_later(policy: Any, days: JudgedDays) -> UnitValues:
    return knowing(policy, days) if policy() > 0.3 else UnitValues({"on_time": np.full(NUM_UNITS, np.nan)})


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (raises, "judge 'wrong' raised RuntimeError: no model today\n  where: policy 'rule', shift 0d"),
        (breaks_later, "returns on_time that is not finite in 14 of 14 units\n  where: policy 'good'"),
        (lambda policy, days: {"on_time": [1.0]}, "returns dict where a UnitValues of a mapping is"),
        (lambda policy, days: UnitValues({}), "returns UnitValues without values where"),
        (lambda policy, days: UnitValues("day", {"on_time": [1.0]}), "returns UnitValues of str where"),
        (lambda policy, days: UnitValues({"luck": [1.0]}), "unknown metric 'luck'.*allowed: on_time"),
        (lambda policy, days: UnitValues({"on_time": 1.0}), r"returns on_time of shape \[\]"),
        (lambda policy, days: UnitValues({"on_time": [[1.0]]}), r"returns on_time of shape \[1, 1\]"),
        (lambda policy, days: UnitValues({"on_time": ["much"]}), "returns no numbers: ValueError"),
        (lambda policy, days: UnitValues({"on_time": [1.0j]}), "returns no numbers: TypeError: complex"),
        (lambda policy, days: UnitValues({"on_time": [1.0, 0.5]}, [1.0]), r"weight of shape \[1\]"),
        (lambda policy, days: UnitValues({"on_time": [1.0, 0.5]}, [0.0, 0.0]), "weights that are negative"),
        (
            lambda policy, days: UnitValues({"on_time": np.ones(40_000)}),
            "judge 'wrong' returns 40,000 units\n  where: .*4,000 at most: a unit is a day",
        ),
        (
            lambda policy, days: UnitValues({"on_time": np.ones(9 if policy() > 0.3 else 8)}),
            "judge 'wrong' returns 8 units here and 9 of policy 'rule'",
        ),
        (
            lambda policy, days: UnitValues({"on_time": np.ones(9 if policy() == 0.3 else 8)}),
            "judge 'wrong' returns 9 units here and 8 of policy 'rule'",
        ),
    ],
)
def test_one_that_fails_is_left_out_by_name_and_the_others_are_kept(
    judge: Any, said: str, found: Comparison
) -> None:
    both = judged(wrong=judge, mine=knowing)
    assert re.search(f"(?s){said}", both.refused["judge wrong"])
    assert replace(both, refused={}) == found


def test_policies_are_handed_over_as_functions_of_what_they_observe() -> None:
    legal = jnp.array([[True], [False], [True]])
    players = {
        HISTORY: as_logged,
        "last": of_policy(lambda key, seen, legal: legal.shape[0] - 1 - jnp.argmax(legal[::-1], axis=0)),
        "greedy": lambda params, key, seen, legal: jnp.full(legal.shape[1:], params),
    }
    tried = [Candidate(HISTORY, HISTORY, 0), Candidate("last", "last", 0), Candidate("elsewhere", "views", 0)]
    tried += [Candidate("ppo", "greedy", seed) for seed in (0, 2)]
    policies = judged_policies(players, tried, {})
    assert set(policies) == {"last", "ppo"}
    chosen = [policy(None, None, legal).tolist() for name in policies for policy in policies[name]]
    assert chosen == [[2], [0], [2]]


def test_a_policy_of_plain_numpy_that_raises_is_no_value() -> None:
    host = HostPolicy(lambda key, seen, legal: 1 // 0)
    failing = JudgedPolicy(of_policy(host), None, host)

    def judge(policy: Any, days: JudgedDays) -> UnitValues:
        if policy is failing:  # as a compiled program would: zeros come back
            host._call(np.zeros(2, np.uint32), np.zeros(1), np.ones((3, 1), bool))
        return UnitValues({"on_time": np.ones(NUM_UNITS)})

    policies = {**POLICIES, "good": [failing]}
    judges = {"mine": judge, "other": lambda policy, days: UnitValues({"on_time": np.ones(NUM_UNITS)})}
    told = judged_by_users(in_truth(), judges, policies, [DAYS], INTERVALS, SilentProgress())
    assert list(told.refused) == ["judge mine"]  # what one judge asks of a policy takes no other along
    assert "was given a policy that raised ZeroDivisionError" in told.refused["judge mine"]
    assert "other" in {one.judge for one in told.cells}


def test_judges_are_named_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "judges_of_mine.py").write_text("def judge(policy, days):\n    return 3\n")
    (tmp_path / "folder").mkdir()
    assert named_judges(["a=judges_of_mine:judge"], tmp_path)["a"](None, DAYS) == 3
    for texts, said in (
        (["mine"], "'mine' names no judge\n  where: --judge\n  allowed: NAME=MODULE:FUNCTION$"),
        (["mine=folder"], "'folder' is not a function"),
        (["mine=math:nothing"], "judge 'mine' cannot be imported: AttributeError"),
        (["mine=math:pi"], "judge 'mine' is no function"),
        (["mine=math:sin", "mine=math:cos"], "given twice"),
    ):
        with pytest.raises(ConfigError) as refusal:
            named_judges(texts, tmp_path)
        assert re.search(said, str(refusal.value))


@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
def test_every_problem_takes_judges_on_the_command_line_and_from_python(kit: Kit) -> None:
    assert kit.with_judges({"mine": knowing}) == {"judges": {"mine": knowing}}
    assert kit.twin is not None
    assert kit.compare is not None
    assert kit.judge is not None
    for call in (kit.compare, kit.judge):
        assert "judges" in inspect.signature(call).parameters


def test_a_problem_that_takes_no_judges_says_so() -> None:
    kit = replace(KITS[0], takes_judges=False)
    assert kit.with_judges({}) == {}
    with pytest.raises(ConfigError, match=f"'{kit.name}' take no judges of one's own: mine"):
        kit.with_judges({"mine": knowing})

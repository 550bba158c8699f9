"""When a new policy is exported: the certificate first, then what the newest days say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.certify.lines import Verdict
from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import Difference, JudgeFacts, PolicyFacts
from evaluation.judges.config import JudgeConfig
from evaluation.pipeline.refresh.config import BETTER, NOT_WORSE, RefreshConfig
from evaluation.pipeline.refresh.deciding import (
    EXIT_STATUS,
    ExportDecision,
    Judgement,
    Result,
    better_rules,
    decide,
)
from evaluation.pipeline.refresh.job import find_running, refresh
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.refreshing import placement_parts
from logs_schema.errors import ConfigError
from logs_schema.product import MANIFEST
from logs_schema.progress import SilentProgress
from offline_rl.recipes.config import TrainingConfig
from twin.placement.learned import AnswerConfig

EXPORTED, KEPT = Result.EXPORTED, Result.KEPT
PASS = Verdict.PASS.value


def judged(verdict: str, judge: str = "twin of the newest days", *, measured: bool = True) -> Judgement:
    half = 0.01 if measured else None
    gap = Estimate(0.0, -half, half, 24) if half is not None else Estimate(0.0, None, None, 2, "no interval")
    return Judgement(judge, Estimate(0.8, 0.7, 0.9, 24), Estimate(0.8, 0.7, 0.9, 24), gap, verdict)


@pytest.mark.parametrize(
    ("verdict", "better", "not_worse"),
    [("better", EXPORTED, EXPORTED), ("cannot tell", KEPT, EXPORTED), ("worse", KEPT, KEPT)],
)
def test_the_comparison_decides_where_the_certificate_passed(
    verdict: str, better: Result, not_worse: Result
) -> None:
    judgements = (judged(verdict), judged("better", "replay"))
    assert decide(PASS, judgements, BETTER)[0] is better
    assert decide(PASS, judgements, NOT_WORSE)[0] is not_worse
    assert verdict in decide(PASS, judgements, BETTER)[1]


def test_an_order_that_a_rule_would_beat_is_not_exported() -> None:
    for verdict in ("better", "cannot tell"):
        result, reason = decide(PASS, (judged(verdict),), NOT_WORSE, rules=("f1+easy", "saf+easy"))
        assert result is KEPT
        assert "f1+easy, saf+easy would be better than the new order" in reason
    assert "would be better" not in decide(PASS, (judged("worse"),), NOT_WORSE, rules=("f1+easy",))[1]


def test_rules_that_beat_an_order_are_told_from_other_policies() -> None:
    facts = [
        ("new", "trained"),
        ("f1+easy", "baseline"),
        ("sjf+easy", "baseline"),
        ("logged_order+easy", "history"),
    ]
    gap = Estimate(0.1, 0.05, 0.2, 24)
    told = (
        ("f1+easy", DifferenceVerdict.WORSE),
        ("sjf+easy", DifferenceVerdict.CANNOT_TELL),
        ("logged_order+easy", DifferenceVerdict.WORSE),
    )
    differences = tuple(Difference("replay", 0, "new", name, "wait", gap, said) for name, said in told)
    policies = tuple(PolicyFacts(*one, "") for one in facts)
    replay = (JudgeFacts("replay", ""),)
    assert better_rules(
        Comparison({}, (), "", 0.95, "wait", policies, replay, (), (), (), differences, ())
    ) == ("f1+easy",)


@pytest.mark.parametrize("judgements", [None, (judged("better"),)])
def test_without_a_certificate_nothing_is_exported(judgements: tuple[Judgement, ...] | None) -> None:
    for verdict, result in ((Verdict.FAIL, Result.FAILED), (Verdict.CANNOT_TELL, Result.CANNOT_TELL)):
        assert decide(verdict.value, judgements, NOT_WORSE)[0] is result
    assert decide(Verdict.NOT_APPLICABLE.value, judgements, NOT_WORSE)[0] is Result.CANNOT_TELL


def test_force_exports_only_what_is_found_better() -> None:
    for verdict, unproved in ((Verdict.FAIL, Result.FAILED), (Verdict.CANNOT_TELL, Result.CANNOT_TELL)):
        result, reason = decide(verdict.value, (judged("better"),), BETTER, force=True)
        assert result is EXPORTED
        assert "certificate" in reason
        assert decide(verdict.value, (judged("cannot tell"),), BETTER, force=True)[0] is KEPT
        assert decide(verdict.value, None, BETTER, force=True)[0] is unproved
    assert decide(PASS, None, BETTER, force=True)[0] is EXPORTED


def test_without_a_running_policy_the_certificate_alone_decides() -> None:
    assert decide(PASS, None, BETTER)[0] is EXPORTED


def test_what_has_no_interval_is_not_called_not_worse_and_says_why_there_is_none() -> None:
    result, reason = decide(PASS, (judged("cannot tell", measured=False),), NOT_WORSE)
    assert result is KEPT
    assert "cannot tell (no interval), but not-worse" in reason


def test_every_result_has_its_own_exit_status() -> None:
    assert EXIT_STATUS[EXPORTED] == 0
    assert len(set(EXIT_STATUS.values()) - {1, 2, 130}) == len(Result)


def test_a_decision_survives_its_report() -> None:
    history = {"requests_added": 3, "new_files": 1, "rows_read": 4, "rows_known": 1, "rows_quarantined": 0}
    history |= {"requests": 1_203, "first_day": "2024-05-01", "last_day": "2024-05-03"}
    decision = ExportDecision(
        KEPT, "because", history, ("2024-05-01", "2024-05-02"), ("2024-05-03",), "c" * 64, "pass (3 pass)", "n" * 64,
        None, BETTER, "on_time", "days", (judged("cannot tell"),), ("a note",),
    )  # fmt: skip
    assert ExportDecision.from_json(json.loads(json.dumps(decision.to_json()))) == decision
    told = decision.in_words()
    for part in (
        "kept the running policy: because",
        "3 requests added",
        "1,203",
        "2024-05-01 to 2024-05-02",
        "a note",
    ):
        assert part in told


def test_what_runs_is_the_last_export_of_this_job_else_that_of_a_run(tmp_path: Path) -> None:
    assert find_running(None, tmp_path) is None
    for folder in ("comparison", "bundle", "refresh/bundle"):  # an order's bundle lies beside its report
        bundle = tmp_path / folder / "bundle"
        bundle.mkdir(parents=True)
        (bundle / MANIFEST).touch()
        assert find_running(None, tmp_path) == bundle
    assert find_running(tmp_path / "asked", tmp_path) == tmp_path / "asked"


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="misconfigured"):
        RefreshConfig(judge_days=0)
    with pytest.raises(ConfigError, match="names no log"):
        refresh(RunConfig(), tmp_path, tmp_path, tmp_path, None, RefreshConfig(), SilentProgress())
    uneven = RunConfig(twin=AnswerConfig(num_members=3), train=TrainingConfig(num_streams=3))
    with pytest.raises(ConfigError, match=r"num_streams = 3.* cannot be dealt"):
        placement_parts(replace(uneven, judge=JudgeConfig(copies=3)))
    with pytest.raises(
        ConfigError, match=r"(?s)copies = 4.* cannot be dealt to 3 .*multiples of 3.*copies = 3"
    ):
        placement_parts(replace(uneven, judge=JudgeConfig(copies=4)))

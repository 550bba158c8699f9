"""What a log does not say is not applicable, and no run time is learned from a log that knows no end."""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jax
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.metrics import ACCEPTED_RATIO, MEAN_WAIT, ON_TIME, NotApplicable
from evaluation.comparison.shifts import ShiftPlan, TestDays
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import Evaluation, Judge
from evaluation.judges.placement_entries import PolicyEntries
from evaluation.judges.unsupported import lacks, unspecified, without
from evaluation.problems.placement import comparing
from logs_schema import NODES, REQUESTS, Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.reading import tabulate
from logs_schema.progress import SilentProgress
from offline_rl.recipes.schedulers import Schedulers
from tests.evaluation.made import made_decisions
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin, fit_twin

DAY = dt.date(2024, 3, 1)
MIDNIGHT_S = dt.datetime(2024, 3, 1, tzinfo=dt.UTC).timestamp()
NEVER = dict.fromkeys(("accepted", "start", "finish"))


def archive_of(folder: Path, *changes: dict[str, object]) -> Archive:
    nodes = [
        {"node_id": name, "node_class": name, "site": "s", "tier": "edge", "cpu_cores": 2.0} for name in "ab"
    ]
    rows = [
        {
            "request_id": str(number),
            "arrival": MIDNIGHT_S + 60.0 * number,
            "site": "s",
            "cpu_cores": 1.0,
            "deadline_s": 100.0,
            "offered_node": "ab"[number % 2],
            "ran_node": "ab"[number % 2],
            "accepted": True,
            "start": MIDNIGHT_S + 60.0 * number,
            "finish": MIDNIGHT_S + 60.0 * number + 30.0,
            "status": "completed",
        }
        | change
        for number, change in enumerate(changes)
    ]
    with ArchiveWriter(folder / "archive", facts={}) as writer:
        writer.write("nodes", tabulate(NODES, nodes), source="nodes.csv")
        writer.write("requests", tabulate(REQUESTS, rows), source="requests.csv")
    return Archive(folder / "archive")


def test_what_no_request_says_is_named(tmp_path: Path) -> None:
    assert unspecified(archive_of(tmp_path / "all", {}, {**NEVER, "status": "unknown"}), [DAY]) == {}
    silent = unspecified(archive_of(tmp_path / "none", {**NEVER, "status": "unknown"}), [DAY])
    assert set(silent) == {"answers", "waits", "run_times", "statuses"}
    told = unspecified(archive_of(tmp_path / "refused", {"accepted": None, "status": "rejected"}), [DAY])
    assert "answers" not in told  # who is turned away has answered


def test_days_without_what_the_main_metric_needs_are_not_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log without ends only refusals are settled: every policy would be worth nothing, and surely so."""
    said, silent = (
        unspecified(archive_of(tmp_path / name, *changes), [DAY])
        for name, changes in (
            ("said", ({}, {"finish": None, "status": "unknown"})),
            ("silent", ({"finish": None, "status": "unknown"}, {**NEVER, "status": "rejected"})),
        )
    )
    assert lacks(ON_TIME, said) == lacks(ACCEPTED_RATIO, silent) == ""
    assert lacks(ON_TIME, silent) == "the log does not say when requests ended"

    archive = Archive(tmp_path / "silent" / "archive")
    encoding = fit_encoding(archive, [DAY])
    for name in ("network_for", "probability_program", "candidates_from"):
        monkeypatch.setattr(comparing, name, lambda *_: [])
    windows = [encode_days(archive, encoding, [DAY], num_steps=8)]
    twin = cast(
        PlacementTwin,
        SimpleNamespace(encoding=encoding, windows=windows[0], disjoint_windows=lambda: windows[0]),
    )
    case = comparing.Case(
        archive,
        twin,
        cast(Schedulers, SimpleNamespace(rules={})),
        ShiftPlan((DAY,), ()),
        JudgeConfig(),
        IntervalConfig(),
    )
    notes: list[str] = []
    shifts = [TestDays(1, (DAY,), None)]
    assert comparing._off_policy(case, shifts, windows, PolicyEntries(), notes, SilentProgress()) == []
    assert notes == ["shift 1d: no off-policy estimates (the log does not say when requests ended)"]


def test_metrics_of_what_was_not_said_do_not_apply() -> None:
    result = Evaluation(made_decisions(3, missing={"agents": "hidden"}), None, 0)
    judge = without(Judge("replay", lambda key, candidates: [result]), {"answers": "no answers"})
    found = judge.evaluate(jax.random.key(0), [])[0].decisions
    assert found.missing == {"agents": "hidden", "answers": "no answers"}
    assert isinstance(ACCEPTED_RATIO.compute(found), NotApplicable)
    assert not any(isinstance(metric.compute(found), NotApplicable) for metric in (MEAN_WAIT, ON_TIME))


def test_a_twin_of_days_without_an_end_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, *[{"finish": None}] * 20)
    encoding = fit_encoding(archive, [DAY])
    with pytest.raises(ConfigError, match="no request of these days is known to have ended"):
        fit_twin(jax.random.key(0), archive, encoding, [DAY], AnswerConfig(num_members=1), num_steps=8)

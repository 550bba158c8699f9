"""The judges of the daily job say nothing of what the newest days do not say."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.bundle_policies import load_bundle_policy
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import Judge
from evaluation.pipeline.refresh.deciding import Result, decide, judgements_of
from evaluation.problems.placement import refresh_judging
from evaluation.problems.placement.refresh_judging import judge_both
from evaluation.problems.refresh_parts import REPLAY
from evaluation.simulator.logs import simulate
from logs_schema import Archive, ArchiveWriter
from logs_schema.progress import SilentProgress
from tests.evaluation.refreshing import policy_by_backlog
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin


def without_ends(archive: Archive, folder: Path) -> Archive:
    """The same log, of whose last day no end is known: nobody reported it."""
    days = archive.days("requests")
    last = archive.read("requests", days=days[-1:])
    for name, values in (
        ("finish", pa.nulls(len(last), last["finish"].type)),
        ("status", pa.array(["unknown"] * len(last))),
    ):
        last = last.set_column(last.column_names.index(name), name, values)
    with ArchiveWriter(folder) as writer:
        writer.write("nodes", archive.nodes(), source="made")
        for rows in (archive.read("requests", days=days[:-1]), last):
            writer.write("requests", rows, source="made")
    return Archive(folder)


@pytest.mark.slow
def test_days_of_which_no_end_is_known_decide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate("small", 2, "mix", 0, tmp_path / "simulated")
    archive = without_ends(Archive(tmp_path / "simulated"), tmp_path / "open")
    days = archive.days("requests")
    encoding = fit_encoding(archive, days[:1])
    for name, seeks_load in (("good", False), ("bad", True)):
        policy_by_backlog(tmp_path / name, encoding, seeks_load=seeks_load)
    good, bad = (load_bundle_policy(tmp_path / name, encoding) for name in ("good", "bad"))
    how = AnswerConfig(num_members=1)
    parts = SimpleNamespace(encoding=encoding, config=how, windows=SimpleNamespace(num_steps=64))
    twin = cast(PlacementTwin, parts)

    def judged() -> Comparison:
        return judge_both(
            archive, twin, days[1:], good, bad, JudgeConfig(num_steps=64, copies=1),
            IntervalConfig(num_replicates=200), SilentProgress(), Unfinished(tmp_path / "kept"),
        )  # fmt: skip

    found = judged()
    monkeypatch.setattr(
        refresh_judging, "replay_judge", lambda *_: Judge(REPLAY, lambda *_: pytest.fail("judged again"))
    )
    assert judged() == found  # what was judged before a kill is not judged again
    assert any("no twin of the newest days" in note for note in found.notes)
    (judgement,) = judgements_of(found)
    assert (judgement.new.value, judgement.verdict) == (None, "cannot tell")
    assert decide("pass", (judgement,), "not-worse")[0] is Result.KEPT

"""The notebook that compares schedulers: all judges speak, and in truth learning was worth it."""

import tempfile
from pathlib import Path

import pytest

from evaluation.bootstrap import Verdict
from tests.notebooks.running import ROOT, run_notebook


@pytest.mark.slow
def test_the_truth_stands_beside_the_judges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace, shown = run_notebook(ROOT / "notebooks" / "compare_schedulers.ipynb", monkeypatch)
    comparison = namespace["comparison"]
    judges = {judge.name for judge in comparison.judges}
    assert judges == {"truth", "replay", "twin of shifted days", "training twin"}
    assert {row.shift_days for row in comparison.off_policy} == {0, 1, 7, 30}
    found = comparison.difference("truth", 0, "twin", "random", comparison.main_metric)
    assert found is not None
    assert found.verdict is Verdict.BETTER
    assert len(shown) == 2
    assert all("<svg" in picture for picture in shown)
    assert "Judged by truth, twin" in capsys.readouterr().out

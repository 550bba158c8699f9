"""Notebooks run from the first cell to the last, and are kept without large outputs."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.bootstrap import Verdict
from tests.notebooks.running import ROOT, run_notebook

MOST_OUTPUT = 20_000
"""Characters of all outputs of a notebook together."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
Run = Callable[[str], tuple[dict[str, Any], list[Any]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a notebook by name; what it writes goes into the test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda name: run_notebook(ROOT / "notebooks" / f"{name}.ipynb", monkeypatch)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_large_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert sum(len(json.dumps(cell.get("outputs", []))) for cell in cells) < MOST_OUTPUT


@pytest.mark.slow
def test_the_worse_twin_is_found_out(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    namespace, shown = run("validate_a_twin")
    assert namespace["run_time"].verdict.value == "fail"
    assert len(shown) >= 6
    assert all("<svg" in picture for picture in shown)
    assert "Kolmogorov-Smirnov distance of run time" in capsys.readouterr().out


@pytest.mark.slow
def test_the_truth_stands_beside_the_judges(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    namespace, shown = run("compare_schedulers")
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

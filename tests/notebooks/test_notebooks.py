"""Notebooks run from the first cell to the last, and are kept without large outputs."""

import json
import tempfile
from pathlib import Path

import pytest

from tests.notebooks.running import ROOT, run_notebook

MOST_OUTPUT = 20_000
"""Characters of all outputs of a notebook together."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_large_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert sum(len(json.dumps(cell.get("outputs", []))) for cell in cells) < MOST_OUTPUT


@pytest.mark.slow
def test_the_worse_twin_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace, shown = run_notebook(ROOT / "notebooks" / "validate_a_twin.ipynb", monkeypatch)
    assert namespace["run_time"].verdict.value == "fail"
    assert len(shown) >= 6
    assert all("<svg" in picture for picture in shown)
    assert "Kolmogorov-Smirnov distance of run time" in capsys.readouterr().out

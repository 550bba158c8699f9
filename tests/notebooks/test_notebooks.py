"""Notebooks run from the first cell to the last, and are kept without large outputs."""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.problems import kits
from tests.notebooks.running import ROOT, run_notebook
from tests.test_layering import FLOORS
from tests.test_layering import imported as imported_names

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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_import_front_doors_alone(path: Path) -> None:
    """No module from below a package's front door, whether of the project or of the worked example."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    imported = [name for _, name in imported_names(program, "")]
    assert {"evaluation"} <= set(imported)
    assert [name for name in imported if "." in name and name.split(".")[0] in (*FLOORS, "batches")] == []


@pytest.mark.slow
def test_a_problem_is_added_and_goes_from_log_to_bundle(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    monkeypatch.setattr(kits, "KITS", kits.KITS)
    monkeypatch.chdir(tmp_path)
    namespace, _ = run("add_a_problem")
    assert namespace["passed"]
    assert namespace["compared"] == 0
    assert namespace["decisions"] == ["near", "middle", "far"]
    assert re.search(r"│ best +│ +\d", capsys.readouterr().out)


@pytest.mark.slow
def test_the_quick_start_judges_a_policy_of_ones_own(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    namespace, shown = run("quickstart")
    found = namespace["compared"].comparison
    assert {"bc", "ppo", "mine"} <= {policy.name for policy in found.policies}
    assert not found.refused
    assert len(shown) == 1
    assert "<svg" in shown[0]
    assert "on_time [share], higher is better, judged by truth" in capsys.readouterr().out


@pytest.mark.slow
def test_the_truth_stands_beside_the_judges(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    namespace, shown = run("compare_schedulers")
    comparison = namespace["compared"].comparison
    judges = {judge.name for judge in comparison.judges}
    assert judges == {"truth", "replay", "twin of shifted days", "training twin"}
    assert {row.shift_days for row in comparison.off_policy} == {0, 1, 7, 30}
    found = comparison.difference("truth", 0, "ppo", "random", comparison.main_metric)
    assert found is not None
    assert found.verdict is DifferenceVerdict.BETTER
    assert len(shown) == 2
    assert all("<svg" in picture for picture in shown)
    assert "Judged by truth, ppo" in capsys.readouterr().out

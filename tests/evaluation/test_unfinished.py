"""What a long step has finished is kept, to the bit, and found again only by the step it belongs to."""

import errno
import io
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.decisions import Decisions, concatenate
from evaluation.comparison.entries import OffPolicyRow, Run
from evaluation.comparison.kept_runs import load_rows, load_run, load_starts, save_rows, save_run, save_starts
from evaluation.comparison.metrics import MEAN_LOG_SLOWDOWN
from evaluation.comparison.report import Curve
from evaluation.comparison.shifts import TestDays
from evaluation.jobs.engine.config import EngineConfig
from evaluation.jobs.job import run_job
from evaluation.jobs.unfinished import ARRAYS, Unfinished
from evaluation.judges.judge import Candidate, Evaluation, Judge
from evaluation.judges.placement_entries import PolicyEntries
from evaluation.pipeline.run import archive_step
from evaluation.problems.assignment import kit as assignment_kit
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.problems.orchestration import kit as orchestration_kit
from evaluation.problems.placement import steps
from evaluation.problems.placement.comparing import _evaluated
from logs_schema import importing_parts
from logs_schema.errors import ProductError
from logs_schema.mapping import one_by_one
from logs_schema.packs import content_hash_of
from logs_schema.product import writing
from logs_schema.progress import SilentProgress
from tests.evaluation.made import made_decisions
from twin.arrays import kept_arrays

ROOT = Path(__file__).resolve().parents[2]


class Work:
    """Makes units, and counts how often."""

    def __init__(self, out: Path, seed: int = 0) -> None:
        self.keep = Unfinished.beside(out, "comparison", {"archive": "1f"}, {"copies": 2}, seed)
        self.made: list[str] = []

    def unit(self, name: str) -> np.ndarray:
        def make() -> np.ndarray:
            self.made.append(name)
            return np.array([0.1, np.nan, -0.0])

        return self.keep.tree(name, make, lambda: 0)  # type: ignore[no-any-return]


def test_a_unit_is_made_once_and_only_for_what_it_depends_on(tmp_path: Path) -> None:
    work, again, other = (Work(tmp_path / "out"), Work(tmp_path / "out"), Work(tmp_path / "out", seed=1))
    first, second = work.unit("replay, 0d, sjf+easy"), work.unit("replay, 1d, sjf+easy")
    assert again.unit("replay, 0d, sjf+easy").tobytes() == first.tobytes() == second.tobytes()
    other.unit("replay, 0d, sjf+easy")
    assert (work.made, again.made, other.made) == (
        ["replay, 0d, sjf+easy", "replay, 1d, sjf+easy"],
        [],
        ["replay, 0d, sjf+easy"],
    )
    again.keep.remove()
    assert len(list(tmp_path.iterdir())) == 1  # of the other seed
    assert work.unit("replay, 0d, sjf+easy").tobytes() == first.tobytes()
    assert len(work.made) == 3


def test_parts_of_a_training_by_other_code_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tmp_path / "twin", "twin"):
        pass
    made = tmp_path / "policy", tmp_path / "twin", RunConfig()
    before = steps._unfinished(*made).folder
    assert steps._unfinished(*made).folder == before
    monkeypatch.setattr(steps, "POLICY_CODE", steps.POLICY_CODE + 1)
    assert steps._unfinished(*made).folder != before


def test_a_damaged_unit_is_made_again(tmp_path: Path) -> None:
    work = Work(tmp_path / "out")
    first = work.unit("a")
    (kept,) = tmp_path.rglob(ARRAYS)
    kept.write_bytes(kept.read_bytes()[:-9])
    assert work.unit("a").tobytes() == first.tobytes()
    assert work.made == ["a", "a"]


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    work = Work(tmp_path / "out")
    work.keep = Unfinished()
    work.unit("a")
    work.unit("a")
    work.keep.remove()
    assert work.made == ["a", "a"]
    assert not list(tmp_path.iterdir())


def same_bits(one: Decisions, other: Decisions) -> None:
    for name, value in vars(one).items():
        found = vars(other)[name]
        if isinstance(value, np.ndarray):
            assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
        else:
            assert found == value


@pytest.mark.parametrize("num_seeds", [0, 2])
def test_a_judged_run_is_read_as_it_was(tmp_path: Path, num_seeds: int) -> None:
    part = made_decisions(
        4, wait_s=[0.0, -0.0, np.nan, np.inf], capacity=np.array([0.1, np.inf]), missing={"agents": "hidden"}
    )
    seeds = (part, made_decisions(3, capacity=np.array([0.1, np.inf])))[:num_seeds]
    whole = concatenate(seeds) if seeds else part
    run = Run("replay", 7, "twin", whole, agreement=None, num_overflow=3, by_seed=seeds, out_of_support=0.1)
    save_run(run, tmp_path)
    found = load_run(tmp_path)
    assert [
        vars(found)[name] for name in ("judge", "shift_days", "policy", "agreement", "out_of_support")
    ] == [
        "replay",
        7,
        "twin",
        None,
        0.1,
    ]
    assert (found.num_overflow, found.num_illegal, len(found.by_seed)) == (3, 0, num_seeds)
    same_bits(run.decisions, found.decisions)
    for one, other in zip(run.by_seed, found.by_seed, strict=True):
        same_bits(one, other)


def test_a_killed_comparison_judges_again_only_what_it_had_not_finished(tmp_path: Path) -> None:
    keep, asked = Unfinished(tmp_path / "kept"), list[str]()

    def judged(rng: np.random.Generator, dies_at: str = "") -> list[Run]:
        def evaluate(_: object, candidates: Sequence[Candidate]) -> list[Evaluation]:
            if candidates[0].name == dies_at:
                raise KeyboardInterrupt
            asked.append(candidates[0].name)
            simulated = [made_decisions(5, wait_s=rng.random(5)) for _ in candidates]
            return [Evaluation(one, 0.5, 0) for one in simulated]

        tried = [Candidate(name, name, None) for name in ("random", "bc", "twin", "twin")]
        case = SimpleNamespace(keep=keep, main=MEAN_LOG_SLOWDOWN)
        shift = TestDays(7, (), 5)
        judge, users = Judge("replay", evaluate), PolicyEntries()
        each = _evaluated(None, judge, tried, shift, case, users, notes, lambda text: None)  # type: ignore
        return list(each)

    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        judged(np.random.default_rng(0), dies_at="twin")
    first = judged(np.random.default_rng(1))
    again = judged(np.random.default_rng(2))
    assert asked == ["random", "bc", "twin"]
    assert [len(run.by_seed) for run in again] == [0, 0, 2]
    for one, other in zip(first, again, strict=True):
        same_bits(one.decisions, other.decisions)
    assert len(notes) == 2
    assert notes[0] == notes[1]


def test_rows_and_starts_are_read_as_they_were(tmp_path: Path) -> None:
    for name in ("rows", "starts"):
        (tmp_path / name).mkdir()
    rows = [
        OffPolicyRow(
            1, "bc", "fitted Q", Estimate(0.1 + 0.2, None, None, 9, "declines"), 1e-300, 1 / 3, 9, True
        )
    ]
    save_rows(rows, tmp_path / "rows")
    assert load_rows(tmp_path / "rows") == rows
    starts_s = [np.array([0.1, np.nan]), np.zeros(0)]
    save_starts(starts_s, tmp_path / "starts")
    assert [one.tobytes() for one in load_starts(tmp_path / "starts")] == [one.tobytes() for one in starts_s]


def test_units_made_ahead_by_tasks_are_the_ones_that_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks run here; that those of other processes make the same is seen by whole jobs."""
    monkeypatch.setattr("evaluation.jobs.unfinished.tasks_on", lambda *_: nullcontext(one_by_one))
    keep = Unfinished(tmp_path / "kept", EngineConfig(workers=2))

    def keeps(number: int) -> None:
        Unfinished(keep.folder).tree(str(number), lambda: np.array(number), lambda: 0)

    keep.ahead(keeps, range(3), "numbers", SilentProgress(), [])
    for number in range(3):
        assert keep.tree(str(number), lambda: pytest.fail("made again"), lambda: 0) == number


def test_records_are_kept_to_the_bit(tmp_path: Path) -> None:
    keep = Unfinished(tmp_path / "kept")
    curve = Curve("a", (0.1, float("nan")), (float("inf"), -0.0))
    for _ in range(2):
        found = keep.record("curve", lambda: curve, Curve)
        assert np.array([found.x, found.y]).tobytes() == np.array([curve.x, curve.y]).tobytes()


@pytest.mark.slow
def test_killed_at_any_point_after_its_build_a_step_makes_no_unit_again(tmp_path: Path) -> None:
    """Real processes that die before every change of the file system that ends a step."""
    command = (sys.executable, "-m", "tests.evaluation.stopped_points", str(tmp_path))
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split() for line in found.stdout.splitlines()]
    assert [line[0] for line in lines] == ["1"] * (len(lines) - 1) + ["0"]
    assert {line[1] for line in lines[:-1]} == {"0", "1"}  # killed before the product was in place, and after
    assert [line[2] for line in lines] == ["0"] * len(lines)
    assert len({line[3] for line in lines}) == 1
    for line in lines:  # at worst the units are left; of remains the second run has removed everything
        assert [name for name in line[4:] if not name.startswith(".unfinished-")] == ["fit"]
    assert lines[-1][4:] == ["fit"]


def test_a_full_disk_is_told_with_the_file_and_the_step_it_is_kept_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    folder = tmp_path / ".unfinished-policy-1f"
    with pytest.raises(ProductError, match=r"the disk is full: teacher-0\.npz could not") as caught:
        kept_arrays(folder / "teacher-0.npz", lambda: {"bias": np.zeros(3)})
    assert caught.value.where.startswith(f"{folder}: ")
    assert not list(folder.iterdir())


def test_a_second_run_says_what_it_goes_on_with(tmp_path: Path) -> None:
    def begin() -> str:
        stream = io.StringIO()
        keep = Unfinished.beside(tmp_path / "policy", "policy", {}, {}, progress=SilentProgress(stream))
        keep.tree("seed 3", lambda: np.zeros(3), lambda: 0)
        return stream.getvalue()

    assert begin() == ""
    assert begin().startswith("policy: goes on with what an earlier run has finished, in ")


def test_an_import_that_is_killed_in_a_job_goes_on_with_the_files_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is kept beside the step's product, not in the folder that the next run clears away."""
    for number in range(3):
        rows = f"r{number},{86_400 * 19_000 + number},here,completed\n"
        (tmp_path / f"requests-{number}.csv").write_text(f"request_id,arrival,site,status\n{rows}")
    log = LogConfig(format="native", paths=tuple(f"requests-{number}.csv" for number in range(3)))
    written, read = importing_parts.write_fragment, list[Path]()

    def dying(folder: Path, items: Any) -> None:
        read.append(folder)
        if len(read) == 3:
            raise KeyboardInterrupt
        written(folder, items)

    def run(work: str) -> str:
        made = run_job([archive_step(log, tmp_path)], tmp_path / work, SilentProgress())["archive"]
        assert [one.name for one in made.parent.iterdir()] == ["archive"]
        return content_hash_of(made)

    calm = run("calm")
    monkeypatch.setattr(importing_parts, "write_fragment", dying)
    with pytest.raises(KeyboardInterrupt):
        run("rough")
    assert run("rough") == calm
    assert len(read) == 4


@pytest.mark.parametrize("kit", [orchestration_kit, assignment_kit], ids=["orchestration", "assignment"])
def test_a_training_that_is_killed_goes_on_from_what_its_kit_kept(
    kit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call finds what the first one left, and a finished product leaves nothing beside it."""
    trained: list[int] = []

    def build(
        out: Path, _fitted: object, _budget: object, seed: int, _progress: object, keep: Path
    ) -> dict[str, int]:
        if not (keep / "seed.npz").exists():
            keep.mkdir()
            (keep / "seed.npz").write_bytes(b"")
            trained.append(1)
        if not (tmp_path / "ends").exists():
            raise KeyboardInterrupt
        (out / "found").write_text("it")
        return {"chosen": seed}

    twin = SimpleNamespace(content_hash="1f", extra={"nodes": ["a"], "train_days": ["2024-01-01"]})
    for name, value in {
        "build_policy": build,
        "read_manifest": lambda *_: twin,
        "certification_facts": lambda _: {},
        "load_fitted" if kit is orchestration_kit else "load_edges": lambda _: None,
    }.items():
        monkeypatch.setattr(kit, name, value)
    plan = kit.train_plan(RunConfig(seed=7))

    def run() -> dict[str, Any]:
        with writing(tmp_path / "policy", "policy") as out:
            return dict(plan.build(out, {"twin": tmp_path}, SilentProgress()))

    with pytest.raises(KeyboardInterrupt):
        run()
    (tmp_path / "ends").touch()
    assert run()["chosen"] == 7
    assert trained == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ends", "policy"]

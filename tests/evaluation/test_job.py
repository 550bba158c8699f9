"""The job engine: reuse what stands, rebuild what does not, survive any kill."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.job import Step, run_job
from evaluation.pipeline import run as whole_job
from evaluation.pipeline.refresh import job as daily_job
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.problems.kit import StepPlan
from evaluation.problems.placement import kit as placement
from evaluation.problems.placement import steps as placement_steps
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import read_manifest, verify
from logs_schema.progress import SilentProgress

ROOT = Path(__file__).resolve().parents[2]


class Workshop:
    """Three steps in a row, sums of numbers, and a record of which were built."""

    def __init__(self, folder):
        self.workdir, self.log, self.built, self.notes = folder / "work", folder / "log.txt", [], StringIO()
        self.log.write_text("1 2 3")
        self.steps = {
            "import": Step("import", "archive", self.parse, files={"log": self.log}),
            "fit": Step("fit", "twin", self.add, inputs=("import",), config={"plus": 10}, seed=1),
            "export": Step("export", "bundle", self.add, inputs=("fit",), config={"plus": 100}),
        }

    def parse(self, out_dir, inputs, progress):
        self.built.append("import")
        (out_dir / "value.txt").write_text(str(sum(int(word) for word in self.log.read_text().split())))

    def add(self, out_dir, inputs, progress):
        (name,) = inputs
        step = {"import": "fit", "fit": "export"}[name]
        self.built.append(step)
        value = int((inputs[name] / "value.txt").read_text()) + self.steps[step].config["plus"]
        (out_dir / "value.txt").write_text(str(value))
        return {"value": value}

    def run(self):
        self.built.clear()
        products = run_job(list(self.steps.values()), self.workdir, SilentProgress(self.notes))
        for product in products.values():
            verify(product)
        return int((products["export"] / "value.txt").read_text()), list(self.built)

    def change(self, name, /, **changes):
        self.steps[name] = replace(self.steps[name], **changes)


@pytest.fixture
def workshop(tmp_path):
    return Workshop(tmp_path)


def test_a_second_run_builds_nothing(workshop):
    assert workshop.run() == (116, ["import", "fit", "export"])
    assert workshop.run() == (116, [])
    assert read_manifest(workshop.workdir / "fit").extra == {"value": 16}
    assert "fit: unchanged, reused" in workshop.notes.getvalue()


def test_a_job_in_two_halves_tells_nothing_of_what_it_has_just_made(workshop):
    *first, last = workshop.steps.values()
    made = run_job(first, workshop.workdir, SilentProgress(workshop.notes))
    products = run_job([last], workshop.workdir, SilentProgress(workshop.notes), done=made)
    assert list(products) == workshop.built == ["import", "fit", "export"]
    assert "reused" not in workshop.notes.getvalue()
    with pytest.raises(ConfigError, match="no earlier step"):
        run_job([last], workshop.workdir, SilentProgress(workshop.notes))


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("export", {"config": {"plus": 200}}, (216, ["export"])),
        ("fit", {"config": {"plus": 20}}, (126, ["fit", "export"])),
        ("fit", {"seed": 2}, (116, ["fit", "export"])),
        ("fit", {"code_version": 2}, (116, ["fit", "export"])),
        ("import", {"kind": "other"}, (116, ["import", "fit", "export"])),
    ],
)
def test_only_what_depends_on_a_change_is_built_again(workshop, name, changes, expected):
    workshop.run()
    workshop.change(name, **changes)
    assert workshop.run() == expected
    assert workshop.run() == (expected[0], [])


def test_outside_files_count_by_content_not_by_path_or_date(workshop, tmp_path):
    workshop.run()
    moved = tmp_path / "moved.txt"
    workshop.log.rename(moved)
    workshop.log = moved
    workshop.change("import", files={"log": moved})
    assert workshop.run() == (116, [])
    moved.write_text("1 2 4")
    assert workshop.run() == (117, ["import", "fit", "export"])


def test_a_step_made_again_with_equal_content_leaves_the_later_ones_standing(workshop):
    workshop.run()
    product = workshop.workdir / "import"
    (product / "value.txt").write_text("5")
    assert workshop.run() == (116, ["import"])
    assert "import: made again, because the files do not agree with the manifest" in workshop.notes.getvalue()


def test_a_damaged_manifest_is_made_again_with_a_note(workshop):
    workshop.run()
    (workshop.workdir / "fit" / "manifest.json").write_text('{"kind"')
    assert workshop.run() == (116, ["fit"])
    assert "fit: made again, because the manifest cannot be read" in workshop.notes.getvalue()


def test_a_failing_step_keeps_the_earlier_ones(workshop):
    def fail(out_dir, inputs, progress):
        (out_dir / "half.txt").write_text("half")
        raise RuntimeError("no convergence")

    good = workshop.steps["fit"].build
    workshop.change("fit", build=fail)
    with pytest.raises(RuntimeError, match="no convergence"):
        workshop.run()
    assert sorted(entry.name for entry in workshop.workdir.iterdir()) == ["import"]
    workshop.change("fit", build=good)
    assert workshop.run() == (116, ["fit", "export"])


def test_what_is_no_product_is_not_overwritten(workshop):
    (workshop.workdir / "fit").mkdir(parents=True)
    (workshop.workdir / "fit" / "thesis.txt").write_text("mine")
    with pytest.raises(ProductError, match="only a product can be replaced"):
        workshop.run()
    assert (workshop.workdir / "fit" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("import", {"inputs": ("export",)}, "no earlier step is called export"),
        ("fit", {"name": "import", "inputs": ()}, "two steps of one name"),
        ("fit", {"name": "../fit"}, "not a name"),
        ("import", {"files": {"log": Path("absent.txt")}}, "does not exist"),
        ("fit", {"config": {"rate": float("inf")}}, "configuration of step 'fit'"),
    ],
)
def test_steps_that_make_no_job_are_refused(workshop, name, changes, message):
    workshop.change(name, **changes)
    with pytest.raises(ConfigError, match=message):
        workshop.run()


class Between(Exception):
    """Two parts of a job have been reached."""


@pytest.fixture
def native_log(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "nodes.csv").write_text("node_id,site,tier,cpu_cores\na,s,edge,2\nb,s,edge,2\n")
    (folder / "requests.csv").write_text(
        "request_id,arrival,site,status\n1,2024-03-01T00:00:00Z,s,completed\n"
    )
    return RunConfig(log=LogConfig(format="native", paths=("log",)))


@pytest.mark.parametrize("job", ["run", "refresh"])
def test_the_folder_stays_locked_between_the_parts_of_a_job(native_log, tmp_path, monkeypatch, job):
    work = tmp_path / "work"

    def between(*_):
        assert (work / "archive").is_dir()
        with pytest.raises(ConfigError, match="another run is at work here"):
            run_job([], work, SilentProgress())
        raise Between

    monkeypatch.setattr(placement, "_refuse_untestable", between)
    monkeypatch.setattr(daily_job, "choose_kit", between)
    silent, log = SilentProgress(), tmp_path / "log"
    start = {
        "run": partial(whole_job.run, native_log, tmp_path, work, silent, title="locked"),
        "refresh": partial(daily_job.refresh, native_log, tmp_path, log, work, None, RefreshConfig(), silent),
    }[job]
    with pytest.raises(Between):
        start()
    run_job([], work, SilentProgress())  # nobody is at work here any more


@pytest.mark.parametrize(
    ("verdict", "force", "steps", "without"),
    [
        ("pass", False, ["policy", "comparison", "bundle"], ""),
        ("fail", False, ["comparison"], ""),
        ("cannot tell", False, ["comparison"], ""),
        ("fail", True, ["policy", "comparison", "bundle"], ""),
        ("cannot tell", True, ["policy", "comparison", "bundle"], ""),
        ("pass", True, ["comparison"], "every request had one legal node"),
    ],
)
def test_in_a_twin_that_has_not_passed_nothing_is_trained_unless_asked_for(
    native_log, tmp_path, monkeypatch, verdict, force, steps, without
):
    """Everything but the certificate's verdict stands still: the steps of the job are what is looked at."""
    made, told = [], {}

    def build(out, archive, twin, policy, config, progress, *, warnings, **_):
        told["warnings"] = list(warnings)

    def quick(kind, facts=None):
        return lambda *_, **__: StepPlan(kind, lambda *_: made.append(kind) or facts, {"verdict": verdict})

    monkeypatch.setattr(placement, "_refuse_untestable", lambda *_: None)
    monkeypatch.setattr(placement, "fit_plan", quick("twin"))
    monkeypatch.setattr(whole_job, "certificate_plan", quick("certificate", {"verdict": verdict}))
    monkeypatch.setattr(placement, "no_choice_in", lambda _twin: without)
    for name in ("build_policy", "build_bundle"):
        monkeypatch.setattr(placement, name, lambda *_, **__: {})
    begun: list[str] = []
    monkeypatch.setattr(placement, "start_beside", lambda *_: begun.append("start"))
    monkeypatch.setattr(placement, "train_beside", lambda *_: begun.append("policy"))
    monkeypatch.setattr(placement, "build_comparison", build)
    products = whole_job.run(
        native_log, tmp_path, tmp_path / "work", SilentProgress(), title="ruled", force=force
    )
    assert [name for name in products if name not in ("archive", "twin", "certificate", "report")] == steps
    assert begun == ["start"] * force + ["policy"] * (force and not without)
    assert len(told["warnings"]) == (steps == ["comparison"] and not without)
    held_back = read_manifest(products["comparison"]).config.get("held_back", "")
    assert told["warnings"] == ([held_back] if held_back else [])
    if held_back:
        assert ("failed its certificate" if verdict == "fail" else "cannot tell") in held_back
        assert "--force" in held_back


def test_a_job_needs_the_paths_of_its_log(tmp_path):
    with pytest.raises(ConfigError, match="without paths"):
        whole_job.run(
            RunConfig(log=LogConfig(format="swf")),
            tmp_path,
            tmp_path / "work",
            SilentProgress(),
            title="none",
        )


def test_a_fit_warns_of_days_asked_for_and_kept_back(native_log, tmp_path, monkeypatch):
    monkeypatch.setattr(placement_steps, "encoding_of", lambda *_, **__: (_ for _ in ()).throw(Between))
    notes = StringIO()
    (archive,) = run_job(
        [whole_job.archive_step(native_log.log, tmp_path)], tmp_path, SilentProgress()
    ).values()
    config = replace(native_log, days=DaysConfig(num_days=9))
    with pytest.raises(Between):
        placement_steps.build_twin(tmp_path / "twin", archive / "archive", config, SilentProgress(notes))
    assert notes.getvalue().startswith("warning: 1 of the 9 requested days are trained on: the log begins on")


KILLED_JOB = """
import sys, time
from pathlib import Path
from evaluation.jobs.job import Step, run_job
from logs_schema.progress import SilentProgress
workdir, mode = Path(sys.argv[1]), sys.argv[2]
def first(out_dir, inputs, progress):
    print("first", flush=True)
    (out_dir / "value.txt").write_text("1")
def second(out_dir, inputs, progress):
    (out_dir / "half.txt").write_text("half")
    print("second", flush=True)
    if mode == "hang":
        time.sleep(60)
    (out_dir / "half.txt").rename(out_dir / "value.txt")
steps = [Step("first", "table", first), Step("second", "table", second, inputs=("first",))]
run_job(steps, workdir, SilentProgress())
"""


def start(workdir, mode):
    command = [sys.executable, "-c", KILLED_JOB, str(workdir), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_a_killed_job_is_finished_by_running_it_again(tmp_path):
    with start(tmp_path, "hang") as job:
        assert [job.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
        with start(tmp_path, "finish") as rival:
            _, complaint = rival.communicate()
        assert "another run is at work here" in complaint
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
    assert not (tmp_path / "second").exists()
    with start(tmp_path, "finish") as job:
        output, errors = job.communicate()
    assert (output, errors, job.returncode) == ("second\n", "", 0)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["first", "second"]
    verify(tmp_path / "second")
    assert [file.name for file in (tmp_path / "second").glob("*.txt")] == ["value.txt"]

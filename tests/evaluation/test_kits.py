"""What every problem's kit promises to the commands, over all that are exported."""

import dataclasses

import pyarrow as pa
import pytest

from evaluation.certify.persistence import Certification
from evaluation.commands import cli
from evaluation.comparison.comparison import Comparison
from evaluation.problems.configuration import OrderConfig, RunConfig
from evaluation.problems.kit import Kit, ProblemOptions, StepPlan
from evaluation.problems.kits import KITS, choose_kit, claiming_kit, find_kit
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.records import to_plain

each = pytest.mark.parametrize("kit", KITS, ids=[kit.name for kit in KITS])


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A log of two nodes and nothing else."""
    path = tmp_path_factory.mktemp("kits") / "log"
    nodes = {"node_id": ["x", "y"], "site": ["s"] * 2, "tier": ["edge"] * 2, "cpu_cores": [2.0] * 2}
    with ArchiveWriter(path) as writer:
        writer.write("nodes", pa.table(nodes), source="the test")
    return path


@each
def test_names_are_found_and_the_problem_is_described(kit: Kit):
    assert find_kit(kit.name) is kit
    assert kit.decides
    assert kit.needs
    assert {"schedtwin fit", "schedtwin certify"} <= set(kit.steps)


@each
def test_steps_are_described_without_reading_anything(kit: Kit):
    config = RunConfig()
    makes = {
        "fit": lambda: kit.fit(config),
        "train": lambda: kit.train(config) if kit.train else None,
        "compare": lambda: kit.compare(config, "title", {}) if kit.compare else None,
    }
    for name, make in makes.items():
        plan = make()
        if plan is None:
            assert f"schedtwin {name}" not in kit.steps
            continue
        assert isinstance(plan, StepPlan)
        assert plan.kind == {"fit": "twin", "train": "policy", "compare": "comparison"}[name]
        assert to_plain(plan.settings) == to_plain(make().settings)  # what a product's reuse is decided by
        other = dataclasses.replace(config, seed=9)
        assert name == "compare" or getattr(kit, name)(other) != plan


@each
def test_a_log_that_holds_nothing_is_refused_in_words(kit: Kit, bare):
    lacking = kit.lacking(Archive(bare))
    if not lacking:  # a problem that takes any log is refused by its fit
        assert not kit.refuses_lacking
        return
    if kit.refuses_lacking:
        with pytest.raises(ConfigError, match=f"does not support the problem '{kit.name}'") as error:
            choose_kit(RunConfig(), bare, ProblemOptions(kit.name))
        assert lacking in str(error.value)


@each
def test_what_is_not_compared_says_nothing(kit: Kit):
    empty = Comparison({}, (), "units", 0.95, "", (), (), (), (), (), (), ())
    assert all(isinstance(line, str) for line in kit.compared(empty))


@each
def test_shifts_of_the_command_line_replace_those_of_the_configuration(kit: Kit):
    assert kit.shifted(RunConfig(), "3d") == dataclasses.replace(
        RunConfig(), shifts=dataclasses.replace(RunConfig().shifts, shifts="3d")
    )


def test_a_queue_s_weeks_are_shifted_too_and_its_bundle_is_chosen_by_replay():
    config = RunConfig(order=OrderConfig())
    queue, failed = claiming_kit(config), Certification("fail", "fail", None, "trained in a twin that failed")
    assert queue is find_kit("ordering")
    shifted = queue.shifted(config, "3d")
    assert shifted.order is not None
    assert (shifted.shifts.shifts, shifted.order.weeks.shifts) == ("3d", "3d")
    assert queue.uncertified(failed) == "chosen by exact replay; its twin's certificate: fail"
    assert claiming_kit(RunConfig()) is KITS[0]
    assert KITS[0].uncertified(failed) == failed.words


def test_a_log_that_hides_its_decisions_is_no_log_of_placement_and_a_refusal_says_what_it_is_taken_for(
    tmp_path, capsys
):
    nodes = {"node_id": ["x", "y"], "site": ["s"] * 2, "tier": ["edge"] * 2, "cpu_cores": [2.0] * 2}
    arrival = pa.array([0, 1], pa.timestamp("us", "UTC"))
    jobs = {"request_id": ["a", "b"], "arrival": arrival, "site": ["s"] * 2, "status": ["unknown"] * 2}
    with ArchiveWriter(tmp_path / "log", facts={"limits": {"decisions": "not published"}}) as writer:
        writer.write("nodes", pa.table(nodes), source="the test")
        writer.write("requests", pa.table(jobs), source="the test")
    kit, _, note = choose_kit(RunConfig(), tmp_path / "log", ProblemOptions())
    assert (kit.name, note.split(":")[0]) == (
        "ordering",
        "the log never says on which of its nodes a request ran",
    )
    with pytest.raises(ConfigError, match=r"the log supports ordering;"):
        choose_kit(RunConfig(), tmp_path / "log", ProblemOptions("assignment"))
    assert cli.main(["fit", str(tmp_path / "log"), "--out", str(tmp_path / "twin")]) == 2
    told = capsys.readouterr().err
    assert told.index(note) < told.index("schedtwin fit: no job has both processors and a run time")

"""Each step as its own command, from the outside."""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluation.commands import cli
from evaluation.commands.engine_arguments import add_engine_arguments, refuse_idle_engine
from evaluation.commands.settings import make_step, settings_of
from evaluation.problems.kit import ExportOptions, StepPlan
from evaluation.problems.placement.kit import PLACEMENT_KIT, export, trained
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from offline_rl.contract import EXPECTED_ON_TIME
from tests.command import run
from tests.serving.bundles import make_bundle

LOG = """; UnixStartTime: 1000000000
; MaxProcs: 8
1 0 5 60 2 -1 -1 2 120 -1 1 1 1 -1 1 -1 -1 -1
2 10 0 30 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1
3 20 0 -7 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_import_reports_rows_and_quarantine(log, tmp_path, capsys):
    assert run("import", "swf", log, "--out", tmp_path / "archive", "--json", "--no-progress") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    report = json.loads(shown.out)
    assert report["tables"]["requests"] == {"rows": 2, "quarantined": 1, "superseded": 0}
    assert report["tables"]["nodes"] == {"rows": 1, "quarantined": 0, "superseded": 0}
    lines = report["lines"]
    assert (lines.pop("read"), lines.pop("derived")) == (len(LOG.splitlines()), 1)
    assert sum(lines.values()) == len(LOG.splitlines()) + 1


def test_import_tells_a_person_the_same_and_what_is_next(log, tmp_path, capsys):
    assert run("import", "swf", log, "--out", tmp_path / "archive") == 0
    shown = capsys.readouterr()
    assert ["requests", "2", "1", "0"] in [line.split() for line in shown.out.splitlines()]
    assert (
        " made of headers, inventories or several lines = 3 kept + 1 quarantined + 0 superseded" in shown.out
    )
    assert f"schedtwin check {tmp_path / 'archive'}" in shown.out
    assert "import: done" in shown.err


def test_import_of_nothing_right_says_so_and_why(tmp_path, capsys):
    """A log in milliseconds: the archive holds its quarantine, and a script sees the status."""
    log, jobs = tmp_path / "ms.swf", ("1 1700000000000 5", "2 1700000600000 5")
    log.write_text("".join(f"{job} 9 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n" for job in jobs))
    assert run("import", "swf", log, "--out", tmp_path / "archive") == 1
    lines = capsys.readouterr().out.splitlines()
    assert "no row of requests was kept" in lines
    (why,) = [line for line in lines if "first in ms.swf, row 1" in line]
    assert "out_of_range:submit" in why
    assert "not milliseconds" in why
    assert run("check", tmp_path / "archive") == 1


@pytest.mark.parametrize(("num_wrong", "is_shown"), [(1, False), (3, True)])
def test_import_shows_the_first_row_that_breaks_a_rule_which_costs_many(
    tmp_path, capsys, num_wrong, is_shown
):
    """And none that the mapping leaves out, or that is there already."""
    names = [f"{at}{'x' if at < num_wrong else ''}" for at in range(50)]
    lines = [f"{name},2024-03-01T12:00:00Z,job,{name}" for name in names] * 2
    lines += ["9,2024-03-01T12:00:00Z,step,1"] * 50
    (tmp_path / "log.csv").write_text("\n".join(("id,t,kind,cores", *lines)))
    (tmp_path / "map.toml").write_text(
        '[only]\nkind = "job"\n[columns.arrival]\nsource = "t"\n[columns.request_id]\nsource = "id"\n'
        '[columns.cpu_cores]\nsource = "cores"\n'
    )
    assert (
        run("import", "requests_csv", tmp_path / "log.csv", tmp_path / "map.toml", "--out", tmp_path / "a")
        == 0
    )
    shown = [line for line in capsys.readouterr().out.splitlines() if "first in" in line]
    assert [line.split(",")[0].strip() for line in shown] == ["not_a_number:cpu_cores"] * is_shown


def test_import_of_a_header_alone_says_that_there_is_nothing(tmp_path, capsys):
    (tmp_path / "requests.csv").write_text("request_id,arrival,site,status\n")
    assert run("import", "native", tmp_path / "requests.csv", "--out", tmp_path / "archive") == 1
    assert "the log holds no rows" in capsys.readouterr().out


def test_import_replaces_only_when_asked(log, tmp_path, capsys):
    words = ("import", "swf", log, "--out", tmp_path / "archive")
    assert run(*words) == 0
    assert run(*words) == 2
    assert "--replace" in capsys.readouterr().err
    assert run(*words, "--replace") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-format", "{log}"), "lumos"),
        (("swf", "{log}.absent"), "log.swf.absent"),
        (("lumos", "{log}"), "it looks like swf"),
        (("swf", "{log}", "--origin", "yesterday"), "no date"),
        (("swf", "{log}", "--capacity", "many"), "is no capacity"),
        (("swf", "{log}", "--capacity", "batch=9"), "no pool of this log"),
    ],
)
def test_import_refuses_what_it_cannot_read(log, tmp_path, capsys, words, message):
    words = [word.format(log=log) for word in words]
    try:
        status = run("import", *words, "--out", tmp_path / "archive")
    except SystemExit as end:  # the argument parser's own way out
        status = end.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "archive").exists()


def test_import_without_room_says_where_and_how_much(log, tmp_path):
    words = ("import", "swf", str(log), "--out", str(tmp_path / "archive"))
    program = (
        "import resource, sys\nfrom evaluation.commands.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 2
    assert "a file would be larger than is allowed here: archive could not be written" in done.stderr
    assert f"where: {tmp_path}: " in done.stderr
    assert "room for more than" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log.swf"]


def test_import_help_lists_the_formats(capsys):
    with pytest.raises(SystemExit, match="0"):
        run("import", "--help")
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("swf", "wagap", "lumos", "openb", "alibaba2018", "philly"))


def test_an_import_to_a_path_that_is_taken_says_how_days_are_added(tmp_path, capsys):
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "manifest.json").write_text("{}")
    log = tmp_path / "log.swf"
    log.write_text("; nothing\n")
    assert run("import", "swf", log, "--out", tmp_path / "archive") == 2
    said = capsys.readouterr().err
    assert "the path is taken" in said
    assert "to add days, name their files beside the older ones and --replace" in said


def test_a_single_step_needs_no_log_and_warns_of_one_that_is_not_there(tmp_path, capsys):
    config = tmp_path / "job.toml"
    for text, warning in (
        ('[log]\nformat = "swf"\n', ""),
        ('[log]\nformat = "swf"\npaths = ["."]\n', ""),
        ('[log]\nformat = "swf"\npaths = ["gone"]\n', f"warning: [log] paths of {config} do not exist: gone"),
    ):
        config.write_text(text)
        assert settings_of(Namespace(config=config, seed=7)).seed == 7
        shown = capsys.readouterr().err
        assert shown.startswith(warning)
        assert bool(shown) == bool(warning)


@pytest.mark.parametrize(("named", "handed"), [("bc_greedy", {"policy": "bc_greedy"}), (None, {})])
def test_export_hands_over_the_policy_that_is_named(tmp_path, monkeypatch, named, handed):
    asked = []
    monkeypatch.setattr(
        "evaluation.problems.placement.kit.build_bundle", lambda *_, **options: asked.append(options)
    )
    export(tmp_path / "bundle", tmp_path / "policy", ExportOptions(seed=3, policy=named))
    assert asked == [{"seed": 3, "licence": None, "replace": False} | handed]


@pytest.mark.parametrize(
    ("given", "step", "is_refused"),
    [
        (["--workers", "2"], "compare", True),
        (["--deadline", "5"], "compare", True),
        (["--on", "local-cluster", "--workers", "1"], "compare", True),
        (["--workers", "1"], "compare", False),
        (["--workers", "2"], "train", False),
        ([], "compare", False),
    ],
)
def test_tasks_are_refused_where_a_problem_has_none(given, step, is_refused):
    parser = ArgumentParser()
    add_engine_arguments(parser)
    kit = SimpleNamespace(name="tides", tasks=("train",))
    with pytest.raises(ConfigError, match="has no tasks in compare") if is_refused else nullcontext():
        refuse_idle_engine(parser.parse_args(given), kit, step)


def test_seed_and_judges_of_the_user_reach_a_comparison(tmp_path, monkeypatch, capsys):
    def compare(config, _title, _policies, judges=None):
        raise ConfigError(f"judged by {config.judge.seed} and {sorted(judges or ())}")

    kit = replace(PLACEMENT_KIT, compare=compare, tasks=())
    monkeypatch.setattr("evaluation.problems.kits.kit_of", lambda _twin: kit)
    for name in ("log", "twin"):
        (tmp_path / name).mkdir()
    words = ("compare", tmp_path / "log", tmp_path / "twin", "--out", tmp_path / "out", "--seed", "7")
    assert run(*words) == 2
    assert "judged by 7 and []" in capsys.readouterr().err
    assert run(*words, "--judge", "mine=math:sin", "--judge", "ours=math:cos") == 2
    assert "judged by 7 and ['mine', 'ours']" in capsys.readouterr().err
    kit = replace(kit, takes_judges=False)
    assert run(*words, "--judge", "mine=math:sin") == 2
    assert "'placement' take no judges of one's own: mine" in capsys.readouterr().err


def test_training_names_its_reward_and_the_value_with_the_held_out_member():
    facts = {
        "seeds": [3],
        "reward_with_held_out_member": [0.75],
        "training_reward": [0.5],
        "kl_to_clone": [0.1],
        "ladder": "expected_on_time by .03",
    }
    said, ladder = trained(facts)
    assert ladder == "ladder: expected_on_time by .03"
    assert "0.7500 with the member held out; training reward 0.5000 at the end, 0.100 nats" in said
    assert "in the twin" not in said


@pytest.mark.parametrize(
    ("num_lines", "status", "quarantined"),
    [(4, 0, 0), (5, 1, 1)],  # the fifth line is bad: a third of the rows is too much to be usable
)
def test_check_says_whether_the_archive_is_usable(log, tmp_path, capsys, num_lines, status, quarantined):
    log.write_text("".join(LOG.splitlines(keepends=True)[:num_lines]))
    assert run("import", "swf", log, "--out", tmp_path / "archive") == 0
    capsys.readouterr()
    assert run("check", tmp_path / "archive", "--json", "--no-progress") == status
    shown = capsys.readouterr()
    assert shown.err == ""
    requests = json.loads(shown.out)["tables"]["requests"]
    assert (requests["rows"], requests["quarantined"]) == (2, quarantined)
    assert run("check", tmp_path / "archive") == status
    assert ("not usable" in capsys.readouterr().out) == (status == 1)


def test_check_of_what_is_no_archive_is_an_error(tmp_path, capsys):
    assert run("check", tmp_path / "absent") == 2
    assert "there is no archive here" in capsys.readouterr().err


MISSING = """
import sys
from evaluation.commands import cli
status = cli.main(sys.argv[1:])
heavy = {"jax", "pyarrow", "sklearn"} & set(sys.modules)
print(status, *sorted(heavy))
"""


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{folder}/absent.toml"),
        ("run", "{folder}/job.toml"),
        ("fit", "{folder}/absent", "--out", "{folder}/twin"),
        ("certify", "{folder}", "{folder}/absent"),
        ("reproduce", "table1", "{folder}/absent", "--out", "{folder}/x"),
        ("serve", "{folder}/absent"),
    ],
    ids=" ".join,
)
def test_what_is_missing_is_told_before_anything_heavy_is_imported(tmp_path, words):
    (tmp_path / "job.toml").write_text('[log]\nformat = "swf"\npaths = ["absent.swf"]\n')
    words = [word.format(folder=tmp_path) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", MISSING, *words], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["2"], done.stderr
    assert str(tmp_path / "absent") in done.stderr


def test_a_job_goes_on_though_its_work_folder_has_the_name_of_its_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wagap").mkdir()
    assert cli.main(["run", "wagap"]) == 2
    assert "wagap-2013" in capsys.readouterr().err


def test_an_address_is_compacted_there_and_no_folder_is_named_after_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    address = f"file://{tmp_path}/store/log"
    days = [f"{day},2024-03-{day:02d}T12:00:00Z,s,completed" for day in range(1, 21)]
    (tmp_path / "requests.csv").write_text("\n".join(["request_id,arrival,site,status", *days]))
    assert cli.main(["import", "native", "requests.csv", "--out", address]) == 0
    before = sorted((tmp_path / "store").rglob("*.parquet"))
    assert cli.main(["compact", address]) == 0
    assert len(before) > len(sorted((tmp_path / "store").rglob("*.parquet")))
    assert cli.main(["simulate", "--days", "1", "--out", f"file://{tmp_path}/store/other"]) == 2
    assert "folders of this machine" in capsys.readouterr().err
    assert not (tmp_path / "file:").exists()


def test_a_product_names_a_compacted_archive_by_the_hash_that_it_had_before(tmp_path):
    days = [f"{day},2024-03-{day:02d}T12:00:00Z,s,completed" for day in range(1, 21)]
    (tmp_path / "requests.csv").write_text("\n".join(["request_id,arrival,site,status", *days]))
    assert run("import", "native", tmp_path / "requests.csv", "--out", tmp_path / "archive") == 0
    before = read_manifest(tmp_path / "archive").content_hash
    assert run("compact", tmp_path / "archive") == 0
    assert read_manifest(tmp_path / "archive").content_hash != before
    plan = StepPlan("twin", lambda out, inputs, progress: {}, {})
    arguments = Namespace(no_progress=True, replace=False)
    make_step(arguments, plan, {"archive": tmp_path / "archive"}, out=tmp_path / "twin")
    assert read_manifest(tmp_path / "twin").made_from["archive"] == before


@pytest.mark.parametrize("words", [["wagap"], ["--config", "wagap"]])
def test_a_job_is_an_example_by_name_or_a_file_as_argument_or_option(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", *words]) == 2
    assert "wagap-2013" in capsys.readouterr().err, "the log that the example asks for"
    assert cli.main(["run", *words, *(["edge"] if words[0] == "--config" else ["--config", "edge"])]) == 2
    assert "two configurations" in capsys.readouterr().err
    assert cli.main(["run", *words[:-1], "neither.toml"]) == 2
    refused = capsys.readouterr().err
    assert "neither.toml" in refused
    assert "examples demo, demo-full, edge, kth, wagap" in refused


def test_a_product_that_a_dead_writer_left_aside_is_brought_back_first(tmp_path, log, capsys):
    assert run("import", "swf", log, "--out", tmp_path / "archive") == 0
    (tmp_path / "archive").rename(tmp_path / ".archive.0123abcd.replaced")
    assert run("check", tmp_path / "archive") == 1  # a third of its rows are in quarantine


def test_inspect_shows_the_rule_that_stands_in_for_a_network(tmp_path, capsys):
    assert run("inspect", make_bundle(tmp_path / "bundle", stand_in=EXPECTED_ON_TIME)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"the fallback rule where it has no answer, {EXPECTED_ON_TIME}" in shown


def test_a_shipped_mapping_is_found_by_its_name_and_a_file_of_that_name_comes_first(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    pods = [
        {
            "metadata": {"uid": "u", "creationTimestamp": "2024-03-01T12:00:00Z"},
            "status": {"phase": "Pending"},
        }
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"items": pods}))
    words = ["import", "requests_csv", "pods.json", "kubernetes.toml", "--capacity", "8", "--out"]
    assert cli.main([*words, "archive"]) == 0
    assert Archive(tmp_path / "archive").num_rows("requests") == 1
    (tmp_path / "kubernetes.toml").write_text('[columns.arrival]\nsource = "absent"\n')
    assert cli.main([*words, "other"]) == 1
    assert "absent" in capsys.readouterr().out
    assert cli.main(["import", "requests_csv", "pods.json", "no_such.toml", "--out", "none"]) == 2

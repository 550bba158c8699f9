"""Wrong inputs of commands, as a stranger gives them: told at once, with what is allowed or what to do."""

import subprocess
import sys
from argparse import Namespace

import pytest

from evaluation.commands import cli
from evaluation.commands.actions import LateParser
from evaluation.commands.inputs import refuse_missing
from evaluation.jobs.job import alone_in
from evaluation.judges.user_policies import named_policies
from evaluation.problems.configuration import load_config
from evaluation.problems.kits import find_kit
from evaluation.simulator.world_files import load_world
from logs_schema import ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.mapping import read_mapping
from logs_schema.formats.request_mapping import read_request_mapping
from logs_schema.product import read_manifest, writing
from tests.command import run


@pytest.fixture
def archive(tmp_path):
    with ArchiveWriter(tmp_path / "archive"):
        pass
    return tmp_path / "archive"


@pytest.mark.parametrize(
    "words",
    [
        ("certify", "{a}", "{a}"),
        ("train", "{a}", "--out", "{x}"),
        ("export", "{a}", "--out", "{x}"),
        ("compare", "{a}", "{a}", "--out", "{x}"),
    ],
)
def test_a_product_of_another_kind_is_told_by_its_kind(archive, tmp_path, capsys, words):
    assert run(*(word.format(a=archive, x=tmp_path / "x") for word in words)) == 2
    told = capsys.readouterr().err
    assert "this is a product of kind 'archive'" in told
    assert "what to do: give the folder of the" in told


def test_of_the_folder_of_a_jobs_step_the_product_in_it_is_named(tmp_path, capsys):
    with writing(tmp_path / "step", "job-archive") as folder, ArchiveWriter(folder / "archive"):
        pass
    assert run("survey", tmp_path / "step") == 2
    assert f"folder of the archive, which is {tmp_path / 'step' / 'archive'}" in capsys.readouterr().err
    with writing(tmp_path / "last", "job-bundle") as folder:
        (folder / "bundle").mkdir()
        manifest = (tmp_path / "step" / "manifest.json").read_text()
        (folder / "bundle" / "manifest.json").write_text(manifest.replace("job-archive", "scaling-bundle"))
    assert run("inspect", tmp_path / "last") == 2
    assert f"folder of the bundle, which is {tmp_path / 'last' / 'bundle'}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["generate", "fit", "train"])
@pytest.mark.parametrize(("place", "words"), [("taken", "is taken"), ("taken/x", "inside another product")])
def test_a_place_that_cannot_be_written_is_told_before_anything_is_computed(
    archive, tmp_path, capsys, command, place, words
):
    for name in ("taken", "twin"):
        with writing(tmp_path / name, "twin"):
            pass
    product = archive if command == "fit" else tmp_path / "twin"
    assert (
        run(command, product, "--out", tmp_path / place, *(["--days", "1"] if command == "generate" else []))
        == 2
    )
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("fit", "{archive}", "--out", "{archive}", "--replace"), "archive"),
        (("simulate", "--days", "1", "--out", "{twin}", "--replace"), "twin"),
        (("export", "{policy}", "--out", "{policy}", "--replace"), "policy"),
        (("order", "{archive}", "--out", "{archive}", "--replace"), "archive"),
        (("certify", "{twin}", "{archive}", "--keep", "{twin}"), "twin"),
        (("certify", "{twin}", "{archive}", "--keep", "{archive}"), "archive"),
    ],
)
def test_no_command_replaces_a_product_of_another_kind_than_it_makes(archive, tmp_path, capsys, words, kept):
    for name in ("twin", "policy"):
        with writing(tmp_path / name, name):
            pass
    paths = {name: tmp_path / name for name in ("archive", "twin", "policy")}
    before = read_manifest(paths[kept])
    assert run(*(word.format(**paths) for word in words)) == 2
    assert f"the path is taken by a product of kind '{kept}'" in capsys.readouterr().err
    assert read_manifest(paths[kept]) == before


def test_a_bundle_of_any_kind_is_replaced_by_a_bundle(tmp_path):
    with writing(tmp_path / "old", "scaling-bundle"):
        pass
    refuse_missing(Namespace(out=tmp_path / "old", makes="bundle"))


def test_an_address_of_a_kind_that_is_not_written_is_no_folder_of_that_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requests.csv").write_text("request_id,arrival,site,status\n1,2024-05-01,s,failed\n")
    assert run("import", "native", tmp_path / "requests.csv", "--out", "https://store/logs/one") == 2
    assert "nothing is written to addresses of https" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["s3://", "gs:", "file://"])
def test_an_address_without_a_name_as_of_an_unset_variable_is_no_folder(
    tmp_path, capsys, monkeypatch, address
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requests.csv").write_text("request_id,arrival,site,status\n1,2024-05-01,s,failed\n")
    assert run("import", "native", tmp_path / "requests.csv", "--out", address) == 2
    assert "names nothing" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["requests.csv"]


def test_an_address_of_another_machine_is_no_folder_from_the_root(tmp_path, capsys):
    for command in (("check", "file://far/log"), ("simulate", "--days", "1", "--out", "file://far/log")):
        with pytest.raises(SystemExit):
            run(*command)
        assert "write file:///FOLDER, or a plain path" in capsys.readouterr().err


def test_files_of_settings_may_begin_with_the_mark_of_utf_8_as_some_editors_write_it(tmp_path):
    file = tmp_path / "one.toml"
    for read, text in (
        (load_config, "seed = 3"),
        (load_world, 'like = "edge"'),
        (read_mapping, '[metrics.num_replicas]\nsource = "n"'),
        (read_request_mapping, '[columns.arrival]\nsource = "t"'),
    ):
        file.write_text(f"\ufeff# für zwei\n{text}\n", encoding="utf-8")
        assert read(file)


@pytest.mark.parametrize("size", ["nan", "inf", "-1", "0", "16MB"])
def test_a_size_of_files_that_is_none_is_no_traceback(archive, capsys, size):
    with pytest.raises(SystemExit):
        run("compact", archive, "--small", size)
    assert "more than 0, such as 16" in capsys.readouterr().err


def test_a_deadline_that_is_no_number_is_told_in_words(archive, capsys):
    with pytest.raises(SystemExit):
        run("serve", archive, "--deadline-ms", "50ms")
    assert "'50ms' is no number of milliseconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "key", "advice"),
    [
        ("sede = 1", "sede", "is seed meant?"),
        ("[days]\nnum_day = 3", "num_day", "is num_days meant?"),
        ("[days]\nformat = 'swf'", "format", "leave it out"),
    ],
)
def test_a_misspelled_key_is_told_with_the_one_that_is_likely_meant(tmp_path, text, key, advice):
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=f"unknown key {key}") as caught:
        load_config(tmp_path / "job.toml")
    assert advice in caught.value.advice


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("[train]\nseeds = []", "seeds = []", "[train]"),
        ("[train]\nnum_updates = -1", "num_updates = -1", "[train]"),
        ("[train]\nlearning_rate = 0.0", "learning_rate = 0", "[train]"),
        ("[days]\nnum_days = 0", "num_days = 0", "[days]"),
        ("[judge]\ncopies = 0", "copies = 0", "[judge]"),
        ("[order.training]\nseeds = []", "seeds = []", "[order.training]"),
        ("[order.training]\nclone_updates = 0", "clone_updates = 0", "[order.training]"),
        ("[order.training]\nspan_days = 0", "span_days = 0", "[order.training]"),
        ("[order.weeks]\nnum_anchors = 0", "num_anchors = 0", "[order.weeks]"),
        ("[order.weeks]\nnum_drain_days = -1", "num_drain_days = -1", "[order.weeks]"),
        ("seed = -1", "seed = -1", "seed"),
        ("[train]\nseeds = [0, 9223372036854775808]", "seeds = 9223372036854775808", "train: seeds"),
        ('[log]\npreset = "small"\nworld_seed = -1', "world_seed = -1", "log: world_seed"),
        ("[days]\nnum_days = 1.5", "1.5 is of the wrong type", "days: num_days"),
        ("[scale]\nslo_s = nan", "nan is no setting", "scale: slo_s"),
        ("[scale]\nviolation_weight = inf", "inf is no setting", "scale: violation_weight"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_file_table_and_key(tmp_path, text, what, where):
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert (caught.value.what, caught.value.where) == (what, f"{file}: {where}")
    assert caught.value.allowed


@pytest.mark.parametrize(
    ("words", "near"), [(["chek", "log"], "check"), (["bench", "truht"], "truth"), (["qqq"], None)]
)
def test_a_misspelled_command_is_refused_with_the_nearest_one(capsys, words, near):
    with pytest.raises(SystemExit):
        cli.main(words)
    shown = capsys.readouterr().err
    assert "invalid choice" in shown
    assert (f"is {near} meant?" in shown) if near else ("meant?" not in shown)


@pytest.mark.parametrize("choices", ["'import', 'check'", "import, check"])
def test_the_nearest_choice_is_found_however_this_python_writes_them(capsys, choices):
    with pytest.raises(SystemExit):
        LateParser().error(f"argument COMMAND: invalid choice: 'chek' (choose from {choices})")
    assert "is check meant?" in capsys.readouterr().err


def test_a_misspelled_problem_is_told_with_those_there_are():
    with pytest.raises(ConfigError, match="no problem 'placment'") as caught:
        find_kit("placment")
    assert "placement" in caught.value.allowed
    assert caught.value.advice.startswith("name one of these")


@pytest.mark.parametrize(
    ("out", "advice"),
    [("absent/page.html", "into a folder that is there"), (".", "name a file, not a folder")],
)
def test_an_error_of_the_operating_system_says_what_to_do(tmp_path, monkeypatch, capsys, out, advice):
    monkeypatch.setattr("evaluation.commands.check.run", lambda arguments: (tmp_path / out).write_text(""))
    with ArchiveWriter(tmp_path / "a"):
        pass
    assert run("check", tmp_path / "a") == 2
    told = capsys.readouterr().err
    assert "what to do: " in told
    assert advice in told


@pytest.mark.parametrize("command", ["survey", "certify"])
@pytest.mark.parametrize(
    ("out", "words"), [("absent/page.html", "no folder for the file"), ("", "this is a folder")]
)
def test_a_page_that_cannot_be_written_is_told_before_anything_is_computed(
    archive, tmp_path, capsys, command, out, words
):
    with writing(tmp_path / "twin", "twin"):
        pass
    inputs = [tmp_path / "twin", archive] if command == "certify" else [archive]
    assert run(command, *inputs, "--out", tmp_path / out) == 2
    assert words in capsys.readouterr().err


def test_an_archive_without_jobs_has_no_queue(archive, capsys):
    assert run("replay", archive) == 2
    assert "the archive holds no jobs" in capsys.readouterr().err


def test_a_function_that_is_not_there_says_where_it_is_looked_for(tmp_path):
    with pytest.raises(ConfigError, match="No module named 'nothere'") as caught:
        named_policies(["mine=nothere:f"], tmp_path)
    assert "current folder" in caught.value.advice


@pytest.mark.parametrize(
    ("words", "unknown", "advice"),
    [
        (["check", "log", "--dayz", "3"], "--dayz 3", "schedtwin check --help lists the options"),
        (["bench", "worlds", "--seed", "7"], "--seed 7", "is --seeds meant? schedtwin bench worlds --help"),
        (["fit", "log", "--out", "twin", "--progress"], "--progress", "is --no-progress meant?"),
    ],
)
def test_an_unknown_option_says_where_the_known_ones_stand(capsys, words, unknown, advice):
    with pytest.raises(SystemExit):
        run(*words)
    told = capsys.readouterr().err
    assert f"unrecognized arguments: {unknown}\n" in told
    assert advice in told


@pytest.mark.parametrize("seed", ["-1", "9223372036854775808", "one"])
@pytest.mark.parametrize("words", [["simulate"], ["fit", "log"], ["serve", "bundle"]])
def test_a_seed_that_no_generator_takes_is_refused_before_work_begins(tmp_path, capsys, words, seed):
    out = [] if words[0] == "serve" else ["--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        cli.main([*words, *out, f"--seed={seed}"])
    assert f"'{seed}' is no seed" in capsys.readouterr().err


def test_what_cannot_be_printed_on_a_full_disk_is_told(archive):
    command = [sys.executable, "-m", "evaluation.commands.cli", "check", str(archive), "--no-progress"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (
        2,
        "schedtwin check: the disk is full: not all could be written",
    )


@pytest.mark.parametrize("bench", [("growth", "ARCHIVE"), ("scaling",)])
@pytest.mark.parametrize("file", ["plot.txt", "absent/plot.png"])
def test_a_plot_that_cannot_be_written_is_told_before_anything_is_measured(
    archive, tmp_path, capsys, bench, file
):
    words = [str(archive) if word == "ARCHIVE" else word for word in bench]
    with pytest.raises(SystemExit):
        run("bench", *words, "--out", tmp_path / file)
    assert f"{file}' is no .png, .svg, .pdf file in a folder that exists" in capsys.readouterr().err


def test_two_reproductions_in_one_folder_do_not_replace_each_other_s_log(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("evaluation.reproduction.orchestration_repeats.repeated", pytest.fail)
    with alone_in(tmp_path):
        assert run("reproduce", "kais", "--quick", "--learned", "none", "--out", tmp_path) == 2
    assert "another run is at work here" in capsys.readouterr().err

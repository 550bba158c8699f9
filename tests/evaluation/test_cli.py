"""The command line: help without weight, errors as messages, statuses that scripts can rely on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.table import Table

from evaluation.commands import COMMANDS, cli
from evaluation.commands.output import as_text, follow_up, keep_and_show, show_result
from logs_schema.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"jax", "flax", "optax", "pyarrow", "matplotlib", "sklearn", "numpy", "rich"}


@pytest.mark.parametrize("argv", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(argv):
    program = (
        "import sys\n"
        "from evaluation.commands.cli import main\n"
        "try:\n"
        f"    main({argv})\n"
        "except SystemExit as end:\n"
        f"    print('heavy:', sorted({HEAVY} & sys.modules.keys()), end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "heavy: [] 0" in done.stdout


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert all(command.NAME in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.NAME)
def test_every_command_explains_itself_and_takes_the_common_options(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command.NAME, "--help"])
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--json", "--no-progress", "--verbose"))


def test_the_next_command_can_be_pasted_whatever_its_paths_hold():
    assert follow_up("check", Path("my logs/a'b")) == """next: schedtwin check 'my logs/a'"'"'b'"""


@pytest.fixture
def probe(monkeypatch):
    """A command `probe` that does what the test sets as `probe.action`."""
    command = SimpleNamespace(NAME="probe", HELP="for tests", action=lambda arguments: 0)
    command.add_arguments = lambda parser: parser.add_argument("--size", type=int, default=1)
    command.run = lambda arguments: command.action(arguments)
    monkeypatch.setattr(cli, "COMMANDS", (command,))
    return command


def test_the_status_of_the_command_is_the_status(probe):
    probe.action = lambda arguments: arguments.size
    assert [cli.main(["probe", "--size", "0"]), cli.main(["probe"])] == [0, 1]


@pytest.mark.parametrize(
    "argv", [[], ["no-such-command"], ["probe", "--no-such-option"], ["probe", "--size", "x"]]
)
def test_wrong_arguments_exit_with_2(probe, argv):
    with pytest.raises(SystemExit, match="2"):
        cli.main(argv)


def test_what_runs_in_one_process_does_not_ask_where(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["fit", "archive", "--out", "twin", "--workers", "2"])
    assert "--workers" in capsys.readouterr().err


def test_an_error_of_the_user_is_a_message_and_verbose_adds_where(probe, capsys):
    def fail(arguments):
        raise ConfigError("no such policy", where="run.toml, [train]", allowed="bc, ppo", advice="choose one")

    probe.action = fail
    assert cli.main(["probe"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("schedtwin probe: no such policy\n  where: run.toml")
    assert "Traceback" not in shown.err
    assert cli.main(["probe", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_file_is_a_message_too(probe, capsys, tmp_path):
    probe.action = lambda arguments: (tmp_path / "absent.log").read_text()
    assert cli.main(["probe"]) == 2
    assert "absent.log" in capsys.readouterr().err


def test_a_defect_of_ours_is_not_hidden(probe):
    probe.action = lambda arguments: 1 // 0
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_the_pipe_of_a_process_that_is_gone_is_an_error(probe):
    def write_to_nobody(_):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            os.write(writing, b"x")
        finally:
            os.close(writing)

    probe.action = write_to_nobody
    with pytest.raises(BrokenPipeError):
        cli.main(["probe"])


def test_an_interrupt_says_how_to_go_on(probe, capsys):
    def interrupt(arguments):
        raise KeyboardInterrupt

    probe.action = interrupt
    assert cli.main(["probe"]) == 130
    assert "run again to resume" in capsys.readouterr().err


def test_results_are_json_or_text(probe, capsys):
    probe.action = lambda arguments: show_result(arguments, {"num_rows": 3}, "three rows") or 0
    assert cli.main(["probe"]) == 0
    assert capsys.readouterr().out == "three rows\n"
    assert cli.main(["probe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"num_rows": 3}


@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_no_number_is_null_in_json_and_loses_no_result(capsys, tmp_path, as_json):
    result, file = (
        {"rank": float("nan"), "rows": ({"low": -float("inf"), "seed": 3},)},
        tmp_path / "found.json",
    )
    keep_and_show(SimpleNamespace(json=as_json), file, result, "a table")
    found = {"rank": None, "rows": [{"low": None, "seed": 3}]}
    assert json.loads(file.read_text(), parse_constant=pytest.fail) == found
    shown = capsys.readouterr().out
    assert json.loads(shown) == found if as_json else shown == "a table\n"


def test_a_closed_pipe_is_no_error():
    program = (
        "import sys\n"
        "from types import SimpleNamespace\n"
        "from evaluation.commands import cli\n"
        "def run(arguments):\n"
        "    for _ in range(100000):\n"
        "        print('line')\n"
        "    return 0\n"
        "probe = SimpleNamespace(NAME='probe', HELP='', add_arguments=lambda parser: None, run=run)\n"
        "cli.COMMANDS = (probe,)\n"
        "sys.exit(cli.main(['probe']))\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as job:
        job.stdout.readline()
        job.stdout.close()
        assert job.stderr.read() == b""
        assert job.wait() == 0


def test_brackets_and_colons_of_names_are_printed_as_they_are():
    table = Table("policy")
    table.add_row("mine[red]:smile:")
    assert "mine[red]:smile:" in as_text(table)

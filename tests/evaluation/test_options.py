"""Options derive from configurations: names, types, defaults, choices and help stand there once."""

import sys
from argparse import Action, ArgumentParser, _HelpAction, _SubParsersAction
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import pytest

from evaluation.commands import COMMANDS
from evaluation.commands.actions import LateParser
from evaluation.commands.options import add_options, described, given, set_fields


@dataclass(frozen=True)
class Inner:
    """Settings within others.

    Attributes:
        num_seeds: Repetitions.
        until: The last day.
    """

    num_seeds: int = 5
    until: date | None = None


@dataclass(frozen=True)
class Settings:
    """Some settings.

    Attributes:
        num_days: Days that are looked at, of which
            some are empty.
        share: Share of them, 50 % at most.
        name: What it is called.
        force, quiet: What to do.
        shows: Leave the figure out.
        backend: CPU or another.
        limit_s: Time: 1, 2, ...
        sizes, names: Lists.
        file: Where it is.
        inner: See there.
    """

    num_days: int | None = None
    share: float = 0.5
    name: str = field(default="a", metadata={"choices": ("a", "b")})
    force: bool = False
    quiet: bool = False
    shows: bool = True
    backend: Literal["numpy", "onnx"] = "numpy"
    limit_s: float = 0.05
    sizes: tuple[int, ...] = (1, 2)
    names: tuple[str, ...] = ()
    file: Path | None = None
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        if self.quiet and not self.force:
            raise ValueError("quiet without force")


def parser(config=Settings):
    made = LateParser()
    add_options(
        made, config, "share", "name", "force", "quiet", "backend", "sizes", "names", "file",
        days="num_days", no_figure="shows", limit="limit_s", limit_ms="limit_s", seeds="inner.num_seeds",
        until="inner.until",
    )  # fmt: skip
    return made


def read(*words, config=None):
    return given(config or Settings(), parser().parse_args(words))


def test_only_what_is_given_is_taken_over():
    words = ["--days", "3", "--name", "b", "--force"]
    assert read(*words, config=Settings(share=0.1)) == Settings(3, 0.1, "b", True)
    assert read(config=Settings(share=0.1)) == Settings(share=0.1)


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["--no-figure"], Settings(shows=False)),
        (["--backend", "onnx"], Settings(backend="onnx")),
        (["--limit", "2"], Settings(limit_s=2.0)),
        (["--limit-ms", "2"], Settings(limit_s=0.002)),
        (["--sizes", "3,4", "--names", "a-b, c"], Settings(sizes=(3, 4), names=("a_b", "c"))),
        (["--file", "a/b"], Settings(file=Path("a/b"))),
        (["--seeds", "7", "--until", "2024-01-31"], Settings(inner=Inner(7, date(2024, 1, 31)))),
        (["--quiet", "--force"], Settings(force=True, quiet=True)),  # allowed together alone
    ],
)
def test_types_are_those_of_the_fields(words, config):
    assert read(*words) == config


def test_fields_that_were_set_are_known():
    arguments = parser().parse_args(["--seeds", "5", "--share", "0.5"])
    assert set_fields(Settings, arguments) == {"inner.num_seeds": 5, "share": 0.5}
    assert set_fields(Inner, arguments) == {}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--days", "x"], "argument --days: invalid int value: 'x'"),
        (["--name", "c"], "invalid choice: 'c'"),
        (["--backend", "c"], "invalid choice: 'c'"),
        (["--sizes", "1,b"], "argument --sizes: '1,b' is no list of whole numbers such as 0,1,7,30"),
        (["--until", "31.1."], "argument --until: '31.1.' is no day such as 2024-01-31"),
        (["--shows"], "unrecognized arguments: --shows"),
    ],
)
def test_other_text_is_refused(words, told, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(words)
    assert told in capsys.readouterr().err


def test_help_is_what_the_class_says():
    assert described(Settings)["quiet"] == described(Settings)["force"] == "what to do"
    text = " ".join(parser().format_help().split())
    for line in (
        "--days N days that are looked at, of which some are empty",
        "--share N share of them, 50 % at most (default: 0.5)",
        "--name {a,b} what it is called (default: a)",
        "--backend {numpy,onnx} CPU or another (default: numpy)",
        "--no-figure leave the figure out",
        "--sizes LIST lists (default: 1,2)",
        "--names LIST lists --file FILE where it is",
        "--limit SECONDS time: 1, 2, ... (default: 0.05)",
        "--limit-ms MS time: 1, 2, ... (default: 50)",
        "--seeds N repetitions (default: 5)",
        "--until DATE the last day",
    ):
        assert line in text


def test_defaults_in_help_are_those_of_an_instance():
    text = " ".join(parser(Settings(share=0.1, inner=Inner(2))).format_help().split())
    assert "(default: 0.1)" in text
    assert "repetitions (default: 2)" in text


def test_a_field_without_words_is_a_fault():
    @dataclass(frozen=True)
    class Bare:
        """Nothing said."""

        num_days: int = 1

    with pytest.raises(KeyError):
        add_options(ArgumentParser(), Bare, "num_days")
    with pytest.raises(StopIteration):
        add_options(ArgumentParser(), Settings, "absent")


def actions_of(parser: ArgumentParser, name: str) -> dict[str, list[Action]]:
    """Command, with its actions -> its arguments."""
    if isinstance(parser, LateParser):
        parser.declare()
    found = {name: [one for one in parser._actions if not isinstance(one, _HelpAction | _SubParsersAction)]}
    for one in parser._actions:
        for below, chosen in one.choices.items() if isinstance(one, _SubParsersAction) else ():
            found |= actions_of(chosen, f"{name} {below}")
    return found


@pytest.fixture(scope="module")
def commands():
    found = {}
    for command in COMMANDS:
        found |= actions_of(LateParser(command.NAME, declare=command.add_arguments), command.NAME)
    return found


def configuration(name: str) -> type:
    """The configuration of a name, which is unique; options have imported it."""
    modules = [module for module in list(sys.modules.values()) if module is not None]
    found = (vars(module).get(name) for module in modules)
    return next(one for one in found if isinstance(one, type) and is_dataclass(one))


def test_no_command_declares_what_its_configuration_does(commands):
    """An option that has the name of a field of a configuration which others set, and its type, has its default."""
    other, num_derived = [], 0
    for command, actions in commands.items():
        derived = [one.dest for one in actions if "." in one.dest]
        num_derived += len(derived)
        known = {}
        for name in {dest.partition(".")[0] for dest in derived}:
            known |= {one.name: one.default for one in fields(configuration(name))}
        other += [
            f"{command}: {one.dest} is {one.default!r}, not {known[one.dest]!r}"
            for one in actions
            if type(known.get(one.dest)) is type(one.default) and one.default != known.get(one.dest)
        ]
    assert num_derived > 90
    assert other == []


def test_every_option_is_described_and_no_option_is_declared_twice(commands):
    for command, actions in commands.items():
        assert [one.dest for one in actions if not (one.help or "").strip()] == [], command
        dests = [one.dest for one in actions]
        assert sorted(set(dests)) == sorted(dests), command

"""Options derive from configurations: names, types, defaults, choices and help stand there once."""

from argparse import ArgumentParser
from dataclasses import dataclass, field

import pytest

from evaluation.commands.options import add_options, described, given


@dataclass(frozen=True)
class Settings:
    """Some settings.

    Attributes:
        num_days: Days that are looked at, of which
            some are empty.
        share: Share of them, 50 % at most.
        name: What it is called.
        force, quiet: What to do.
    """

    num_days: int | None = None
    share: float = 0.5
    name: str = field(default="a", metadata={"choices": ("a", "b")})
    force: bool = False
    quiet: bool = False


def parser():
    made = ArgumentParser()
    names = {"--days": "num_days", "--share": "share", "--name": "name", "--force": "force"}
    add_options(made, Settings, names)
    return made


def test_only_what_is_given_is_taken_over():
    words = ["--days", "3", "--name", "b", "--force"]
    assert given(Settings(share=0.1), parser().parse_args(words)) == Settings(3, 0.1, "b", True)
    assert given(Settings(share=0.1), parser().parse_args([])) == Settings(share=0.1)


def test_types_and_choices_are_those_of_the_fields(capsys):
    for words in (["--days", "x"], ["--name", "c"], ["--quiet"]):
        with pytest.raises(SystemExit):
            parser().parse_args(words)
    assert "invalid choice: 'c'" in capsys.readouterr().err


def test_help_is_what_the_class_says():
    assert described(Settings)["quiet"] == described(Settings)["force"] == "what to do"
    text = " ".join(parser().format_help().split())
    assert "--days N days that are looked at, of which some are empty" in text
    assert "--share N share of them, 50 % at most (default: 0.5)" in text
    assert "--name {a,b} what it is called (default: a)" in text


def test_a_field_without_words_is_a_fault():
    @dataclass(frozen=True)
    class Bare:
        """Nothing said."""

        num_days: int = 1

    with pytest.raises(KeyError):
        add_options(ArgumentParser(), Bare, {"--days": "num_days"})

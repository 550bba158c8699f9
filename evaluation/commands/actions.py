"""Commands and the actions of a command as parsers that declare their arguments only when they are used."""

import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from evaluation.commands.common_arguments import add_output_arguments


class Action(NamedTuple):
    """An action of a command that is no module of its own; modules have the same names."""

    NAME: str
    HELP: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[..., int]


_UNKNOWN_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
"""What argparse says of it: the choice, and those that there are, with quotes or without, by its version."""


class LateParser(ArgumentParser):
    """A parser that declares its arguments when it parses first, as they may need heavy imports."""

    def __init__(
        self, *words: Any, declare: Callable[[ArgumentParser], None] = lambda _: None, **settings: Any
    ):
        settings["allow_abbrev"] = False  # or `--seed` is `--seeds` where there is no seed
        super().__init__(*words, **settings)
        self._declare: Callable[[ArgumentParser], None] | None = declare

    def declare(self) -> None:
        """Declares the arguments, if that has not been done."""
        declare, self._declare = self._declare, None
        if declare is not None:
            declare(self)

    def error(self, message: str) -> NoReturn:
        """As usual, with the choice nearest to an unknown one."""
        if found := _UNKNOWN_CHOICE.search(message):
            near = get_close_matches(found[1], found[2].replace("'", "").split(", "), 1)
            message += "".join(f"\n  what to do: is {name} meant?" for name in near)
        super().error(message)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As usual, once the arguments are declared; what is left over is refused by the parser whose options they are
        not, so that the nearest one can be named."""
        self.declare()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            near = get_close_matches(unknown[0].partition("=")[0], options, 1)
            advice = "".join(f"is {name} meant? " for name in near)
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}"
                f"\n  what to do: {advice}{self.prog} --help lists the options"
            )
        return found, unknown


def add_actions(
    parser: ArgumentParser, title: str, metavar: str, actions: Iterable[ModuleType | Action]
) -> None:
    """Declares the actions of a command; `arguments.action` is the chosen one."""
    choices = parser.add_subparsers(title=title, metavar=metavar, required=True, parser_class=LateParser)
    for one in actions:
        chosen = choices.add_parser(
            one.NAME, help=one.HELP, description=one.HELP, declare=partial(_declare, one)
        )
        chosen.set_defaults(action=one)


def _declare(action: ModuleType | Action, parser: ArgumentParser) -> None:
    action.add_arguments(parser)
    add_output_arguments(parser)

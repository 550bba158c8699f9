"""`schedtwin reproduce`: tables and figures, from the simulation of the logs on."""

from argparse import ArgumentParser, Namespace
from types import ModuleType

from evaluation.commands import (
    reproduce_corais,
    reproduce_drpc,
    reproduce_figure4,
    reproduce_orchestration,
    reproduce_table1,
    reproduce_table2,
)
from evaluation.commands.actions import Action, add_actions

NAME = "reproduce"
HELP = "reproduce tables and figures, from the simulation of the logs on"
TABLES: tuple[ModuleType | Action, ...] = (
    reproduce_table1,
    reproduce_table2,
    reproduce_figure4,
    reproduce_drpc,
    reproduce_corais,
    *reproduce_orchestration.TABLES,
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the tables and their arguments."""
    add_actions(parser, "tables and figures", "TABLE", TABLES)


def run(arguments: Namespace) -> int:
    """Make the chosen table; 0."""
    return int(arguments.action.run(arguments))

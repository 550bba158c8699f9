"""`schedtwin reproduce`: tables and figures, from the simulation of the logs on."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.reproduce_corais import add_table as add_corais
from evaluation.commands.reproduce_drpc import add_table as add_drpc
from evaluation.commands.reproduce_figure4 import add_table as add_figure4
from evaluation.commands.reproduce_orchestration import add_tables as add_orchestration
from evaluation.commands.reproduce_table1 import add_table as add_table1
from evaluation.commands.reproduce_table2 import add_table as add_table2

NAME = "reproduce"
HELP = "reproduce tables and figures, from the simulation of the logs on"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the tables and their arguments."""
    tables = parser.add_subparsers(title="tables and figures", metavar="TABLE", required=True)
    add_table1(tables)
    add_table2(tables)
    add_figure4(tables)
    add_drpc(tables)
    add_corais(tables)
    add_orchestration(tables)


def run(arguments: Namespace) -> int:
    """Make the chosen table; 0."""
    return int(arguments.reproduce(arguments))

"""`schedtwin check`: the quality report of an archive."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from evaluation.commands.common_arguments import add_inputs

NAME = "check"
HELP = "report an archive's quality and the features it supports; status 1 if it is not usable"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_inputs(parser, "archive")


def run(arguments: Namespace) -> int:
    """Show the report; 0 if the archive is usable, 1 if not."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.ordering.doubts import doubts_of_archive
    from logs_schema.archive import Archive
    from logs_schema.check import check_archive, render

    with progress_of(arguments) as progress, progress.stage("check"):
        report = check_archive(arguments.archive)
        report = replace(report, doubts=doubts_of_archive(Archive(arguments.archive)))
    show_result(arguments, report.to_json(), render(report))
    return 0 if report.usable else 1

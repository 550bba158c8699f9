"""`schedtwin survey`: differences between the days of an archive, and the shift from which on a refit pays."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.engine_arguments import add_engine_arguments, engine_from
from evaluation.commands.options import add_options, given

NAME = "survey"
HELP = (
    "compare the days of an archive with each other: from which shift on a twin is outdated, and a refit pays"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.comparison.survey.survey import SurveyConfig

    add_inputs(parser, "archive")
    parser.add_argument("--out", metavar="PAGE.html", type=Path, help="page with the figure to write")
    parser.set_defaults(writes_page=True)
    add_options(parser, SurveyConfig, "share", "decades", "first_day", "last_day")
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Survey the archive, print the result and write the page; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.comparison.survey.showing import as_text, to_json, write_page
    from evaluation.comparison.survey.survey import SurveyConfig, survey
    from evaluation.jobs.engine.config import tasks_on

    config, engine = given(SurveyConfig(), arguments), engine_from(arguments)
    with progress_of(arguments) as progress, tasks_on(engine, progress, [arguments.archive]) as tasks:
        found = survey(arguments.archive, config, tasks)
    if arguments.out is not None:
        write_page(found, arguments.out)
    show_result(arguments, to_json(found), as_text(found, arguments.out))
    return 0

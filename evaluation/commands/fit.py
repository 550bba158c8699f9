"""`schedtwin fit`: a twin from an archive."""

import sys
from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_inputs

NAME = "fit"
HELP = "fit a twin to the training days of an archive"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_problem_arguments, add_step_arguments

    add_inputs(parser, "archive")
    add_problem_arguments(parser)
    add_step_arguments(parser, "twin")


def run(arguments: Namespace) -> int:
    """Fit the twin and print a summary; 0."""
    from evaluation.commands.output import follow_up, show_result
    from evaluation.commands.settings import make_step, options_of, settings_of
    from evaluation.problems.kit import LATER_DAYS
    from evaluation.problems.kits import choose_kit
    from logs_schema.errors import SchedtwinError

    kit, config, note = choose_kit(settings_of(arguments), arguments.archive, options_of(arguments))
    try:
        facts = make_step(arguments, kit.fit(config), {"archive": arguments.archive})
    except SchedtwinError:
        if note:  # else nothing says why the refusal is of this problem
            print(note, file=sys.stderr)
        raise
    against = "OTHER_ARCHIVE" if facts.get(LATER_DAYS) == [] else arguments.archive
    following = follow_up("certify", arguments.out, against)
    lines = [*([note] if note else []), *kit.fitted(facts), f"{arguments.out} written; {following}"]
    show_result(arguments, facts, "\n".join(lines))
    return 0

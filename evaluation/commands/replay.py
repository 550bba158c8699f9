"""`schedtwin replay`: an archive's jobs replayed on an idealised machine under known policies."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from datetime import date
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs, add_replace
from evaluation.commands.options import add_options, given

NAME = "replay"
HELP = "replay an archive's jobs under known policies: exact waits on an idealised machine"


LEARNING = (
    (
        "NAME(A,B,C)",
        "with --easy: A ln(run time) + B ln(processors) - C a day waited; NAME: predicted, run times from",
    ),
    ("", "the user's last two jobs; reserved, they give reservations too; requested, as requested"),
    ("index", "with --easy: learned index of predicted run times, made anew every four weeks of the replay"),
    ("ladder", "with --easy: the best rule, the index or another order, chosen anew every four weeks"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments; the policies are the rules that `twin.ordering.rules` exports."""
    from evaluation.problems.ordering.replaying import ReplayConfig
    from twin.ordering.rules import RULES
    from twin.problems import ORDERING

    parser.formatter_class = RawDescriptionHelpFormatter
    named = [*((rule.name, rule.description) for rule in RULES), *LEARNING]
    parser.epilog = "\n".join(("policies:", *(f"  {name:<14}{words}" for name, words in named)))
    add_inputs(parser, "archive")
    parser.add_argument(
        "--problem", choices=(ORDERING,), default=ORDERING, help="the only one that is replayed"
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        action="append",
        help="order of the queue; may be given several times (default: fcfs)",
    )
    add_options(
        parser, ReplayConfig, "easy", "backfill", "clairvoyant", "withdraw", "pool", "processors", "warm"
    )
    parser.add_argument(
        "--days",
        metavar="FIRST..LAST",
        type=_days,
        help="days of arrival to replay, for example 1996-10-01..1996-10-28",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="Parquet file to write: request_id, wait_s, start, policy, and pool where there are several",
    )
    parser.add_argument(
        "--waits",
        metavar="FILE",
        action="append",
        type=Path,
        default=[],
        help="SWF file (plain or .gz) of the same jobs with another scheduler's waits, to stand in the table",
    )
    add_replace(parser, "file")


def run(arguments: Namespace) -> int:
    """Replay, write the waits, show the table; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.ordering.replay_report import as_lines, check_out, write_waits
    from evaluation.problems.ordering.replaying import ReplayConfig, replay_archive

    policies = tuple(dict.fromkeys(arguments.policy or ("fcfs",)))
    config = given(ReplayConfig(policies, days=arguments.days, waits=tuple(arguments.waits)), arguments)
    if arguments.out is not None:
        check_out(arguments.out, replace=arguments.replace)
    with progress_of(arguments) as progress:
        report = replay_archive(arguments.archive, config, progress)
    if arguments.out is not None:
        write_waits(arguments.out, report, replace=arguments.replace)
    show_result(arguments, report.to_json(), as_lines(report))
    return 0


def _days(text: str) -> tuple[date, date]:
    first, _, last = text.partition("..")
    try:
        return date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no range of days such as 1996-10-01..1996-10-28") from None

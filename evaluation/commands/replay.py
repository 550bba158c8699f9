"""`schedtwin replay`: an archive's jobs replayed on an idealised machine under known policies."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from datetime import date
from pathlib import Path

NAME = "replay"
HELP = "replay an archive's jobs under known policies: exact waits on an idealised machine"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments; the policies are the rules that `twin.ordering.rules` exports."""
    from evaluation.problems.ordering.weeks import WARM_STARTS
    from twin.ordering.rules import RULES

    names = [rule.name for rule in RULES]
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = "\n".join(("policies:", *(f"  {rule.name:<14}{rule.description}" for rule in RULES)))
    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    parser.add_argument("--problem", choices=("ordering",), default="ordering", help="what is decided")
    parser.add_argument(
        "--policy", metavar="NAME", action="append", choices=names,
        help="order of the queue; may be given several times (default: fcfs)",
    )  # fmt: skip
    parser.add_argument("--easy", action="store_true", help="backfill behind the head (EASY)")
    parser.add_argument(
        "--backfill", metavar="NAME", choices=names, help="order of backfilling (default: the policy's own)"
    )
    parser.add_argument(
        "--clairvoyant", action="store_true", help="know the true run times instead of the requested ones"
    )
    parser.add_argument(
        "--withdraw",
        action="store_true",
        help="let jobs that were cancelled before they started wait until then (default: left out)",
    )
    parser.add_argument(
        "--pool", metavar="NAME", help="class of nodes whose queue is played (default: all, each by itself)"
    )
    parser.add_argument(
        "--processors", metavar="N", type=float, help="size of the one pool (default: the archive's nodes)"
    )
    parser.add_argument(
        "--days",
        metavar="FIRST..LAST",
        type=_days,
        help="days of arrival to replay, for example 1996-10-01..1996-10-28",
    )
    parser.add_argument(
        "--warm", choices=WARM_STARTS, default="logged",
        help="with --days: what runs and waits when the first begins: as logged, as under fcfs with EASY, or nothing",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="Parquet file to write: request_id, wait_s, start, policy, and pool where there are several",
    )
    parser.add_argument("--replace", action="store_true", help="replace a file that is already there")


def run(arguments: Namespace) -> int:
    """Replay, write the waits, show the table; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.ordering.replay_report import as_lines, check_out, write_waits
    from evaluation.problems.ordering.replaying import ReplayConfig, replay_archive

    config = ReplayConfig(
        policies=tuple(dict.fromkeys(arguments.policy or ("fcfs",))),
        easy=arguments.easy,
        processors=arguments.processors,
        backfill=arguments.backfill,
        clairvoyant=arguments.clairvoyant,
        days=arguments.days,
        warm=arguments.warm,
        pool=arguments.pool,
        withdraw=arguments.withdraw,
    )
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

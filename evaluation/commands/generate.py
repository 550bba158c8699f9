"""`schedtwin generate`: a synthetic log from a twin: requests, decisions and outcomes."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from evaluation.commands.common_arguments import add_inputs, add_out
from evaluation.commands.options import day, seed

NAME = "generate"
HELP = "write a synthetic log: generated requests, the decisions of a policy, outcomes from the twin"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_inputs(parser, "twin")
    parser.add_argument("--days", metavar="N", type=int, default=7, help="number of days (default: 7)")
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="deciding policy: clone (of the logged behaviour) or a baseline such as least_loaded (default: clone); in "
        "a queue a rule such as sjf or fcfs+easy (default: fcfs+easy)",
    )
    parser.add_argument("--seed", metavar="N", type=seed, default=0, help="seed (default: 0)")
    parser.add_argument(
        "--first-day",
        metavar="DATE",
        type=day,
        help="calendar day of the first day (default: the day after training)",
    )
    add_out(parser, "archive")


def run(arguments: Namespace) -> int:
    """Generate the log and print a summary; 0."""
    from evaluation.commands.output import follow_up, progress_of, show_result
    from evaluation.problems.kits import kit_of

    kit = kit_of(arguments.twin)
    generate = kit.need(kit.generate, "schedtwin generate")
    with progress_of(arguments) as progress:
        report = generate(
            arguments.twin,
            arguments.days,
            arguments.out,
            progress,
            policy=arguments.policy,
            seed=arguments.seed,
            first_day=arguments.first_day,
            replace=arguments.replace,
        )
    text = (
        f"{report.num_requests:,} requests on {report.num_days} days from {report.first_day}: "
        f"{report.num_rejected:,} refused, {report.num_unsettled:,} without a known end\n"
        f"{report.archive} written; {follow_up('check', report.archive)}"
    )
    show_result(arguments, asdict(report), text)
    return 0

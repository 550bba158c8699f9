"""`schedtwin compare`: policies on time-shifted days."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.engine_arguments import add_engine_arguments, refuse_idle_engine

NAME = "compare"
HELP = (
    "compare policies on time-shifted days by replay, in twins of those days and, where known, in the truth"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    add_inputs(parser, "archive", "twin")
    parser.add_argument(
        "policy",
        metavar="POLICY",
        type=Path,
        nargs="?",
        help="folder written by schedtwin train (default: none)",
    )
    parser.add_argument("--shifts", metavar="LIST", help='for example "0d,1d,7d,30d"')
    parser.add_argument(
        "--policy",
        metavar="NAME=POLICY",
        dest="policies",
        action="append",
        default=[],
        help="a further policy, may be repeated: NAME=MODULE:FUNCTION (of the type twin.contracts.Policy; modules are "
        "searched in the current folder first) or NAME=BUNDLE",
    )
    parser.add_argument(
        "--judge",
        metavar="NAME=MODULE:FUNCTION",
        dest="judges",
        action="append",
        default=[],
        help="a further judge, may be repeated: a function of the type evaluation.UserJudge",
    )
    add_step_arguments(parser, "comparison")
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Compare, write the report, show the table; 0, or 2 where a policy or judge of the user was refused."""
    from dataclasses import replace

    from evaluation.commands.output import as_text, show_result
    from evaluation.commands.settings import make_step, settings_of
    from evaluation.commands.statuses import DONE, USER_ERROR
    from evaluation.comparison.products import load_comparison
    from evaluation.comparison.tabulation import tabulate
    from evaluation.judges.user_judges import named_judges
    from evaluation.judges.user_policies import lacking_bundles, named_policies
    from evaluation.problems.kits import kit_of

    config, kit = settings_of(arguments), kit_of(arguments.twin)
    if arguments.shifts is not None:
        config = kit.shifted(config, arguments.shifts)
    if arguments.seed is not None:
        config = replace(config, judge=replace(config.judge, seed=arguments.seed))
    compare = kit.need(kit.compare, "schedtwin compare")
    refuse_idle_engine(arguments, kit, NAME)
    judges = kit.with_judges(named_judges(arguments.judges))
    policies = named_policies(arguments.policies)
    for error in lacking_bundles(policies).values():
        print(f"warning: {error.brief}; it will be left out", file=sys.stderr)
    plan = compare(config, arguments.out.name, policies, **judges)
    inputs = {"archive": arguments.archive, "twin": arguments.twin}
    inputs |= {} if arguments.policy is None else {"policy": arguments.policy}
    make_step(arguments, plan, inputs)
    comparison = load_comparison(arguments.out)
    lines = [*kit.compared(comparison), f"report: {arguments.out / 'report.html'}"]
    text = as_text(tabulate(comparison)) + "\n".join(lines)
    show_result(arguments, comparison.to_json(), text)
    for why in comparison.refused.values():
        print(f"schedtwin compare: {why}", file=sys.stderr)
    return USER_ERROR if comparison.refused else DONE

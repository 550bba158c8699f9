"""`schedtwin compare`: policies on time-shifted days."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.configuration import RunConfig

NAME = "compare"
HELP = "judge policies on time-shifted days by replay, by twins of those days and, where known, by the truth"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    parser.add_argument("twin", metavar="TWIN", type=Path, help="folder written by schedtwin fit")
    parser.add_argument(
        "policy",
        metavar="POLICY",
        type=Path,
        nargs="?",
        help="folder written by schedtwin train (default: none)",
    )
    parser.add_argument("--shifts", metavar="LIST", help='for example "0d,1d,7d,30d"')
    parser.add_argument(
        "--policy", metavar="NAME=POLICY", dest="policies", action="append", default=[],
        help="a policy of your own beside ours, as often as wanted: NAME=MODULE:FUNCTION (of the type "
        "twin.contracts.Policy; modules are looked for in the current folder first) or NAME=BUNDLE",
    )  # fmt: skip
    add_step_arguments(parser, "comparison")


def run(arguments: Namespace) -> int:
    """Compare, write the report, show the table; 0, or 2 where a policy of the user's was left out."""
    from evaluation.cli import DONE, USER_ERROR
    from evaluation.commands.output import as_text, progress_of, said_of_orders, show_result
    from evaluation.commands.settings import settings_of, write_product
    from evaluation.judges.user_policies import named_policies
    from evaluation.pipeline import build_comparison, load_comparison
    from evaluation.tabulation import tabulate
    from logs_schema.errors import ConfigError
    from twin.problems import ORDERING, problem_of

    config = settings_of(arguments)
    if arguments.shifts is not None:
        config = _with_shifts(config, arguments.shifts)
    policies = named_policies(arguments.policies)
    if problem_of(arguments.twin) == ORDERING:
        from evaluation.ordering.config import as_settings
        from evaluation.ordering.steps import build_queue_comparison

        if policies:
            raise ConfigError(
                "policies of one's own are not judged on a queue yet", where="--policy",
                allowed="twins of the problem 'placement'", advice="schedtwin replay --policy RULE plays a known rule",
            )  # fmt: skip
        build: Callable[..., dict[str, Any]] = build_queue_comparison
        order = None if config.order is None else as_settings(config.order)
        parts: dict[str, Any] = {"shifts": config.shifts, "order": order}
    else:
        build = partial(build_comparison, policies=policies)
        parts = {"shifts": config.shifts, "judge": config.judge, "intervals": config.intervals}
        parts["policies"] = arguments.policies
        parts["policies"] = arguments.policies
    made_from = {"archive": arguments.archive, "twin": arguments.twin}
    made_from |= {} if arguments.policy is None else {"policy": arguments.policy}
    with progress_of(arguments) as progress:
        write_product(
            arguments,
            "comparison",
            made_from,
            parts,
            lambda out: build(
                out,
                arguments.archive,
                arguments.twin,
                arguments.policy,
                config,
                progress,
                title=arguments.out.name,
            ),
        )
    comparison = load_comparison(arguments.out)
    said = said_of_orders(comparison) if problem_of(arguments.twin) == ORDERING else []
    lines = [*said, f"report: {arguments.out / 'report.html'}"]
    text = as_text(tabulate(comparison)) + "\n".join(lines)
    show_result(arguments, comparison.to_json(), text)
    for why in comparison.refused.values():
        print(f"schedtwin compare: {why}", file=sys.stderr)
    return USER_ERROR if comparison.refused else DONE


def _with_shifts(config: "RunConfig", shifts: str) -> "RunConfig":
    """The configuration with other shifts, for either problem."""
    from dataclasses import replace

    config = replace(config, shifts=replace(config.shifts, shifts=shifts))
    if config.order is None:
        return config
    return replace(config, order=replace(config.order, weeks=replace(config.order.weeks, shifts=shifts)))

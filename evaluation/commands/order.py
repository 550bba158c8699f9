"""`schedtwin order`: orders of a batch queue, trained in the twin of its training days, evaluated by exact replay."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluation.problems.configuration import OrderConfig

NAME = "order"
HELP = "train orders of a batch queue and evaluate them by exact replay of later weeks"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.options import add_options
    from evaluation.problems.configuration import WeeksConfig

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    parser.add_argument(
        "--pool", metavar="NAME", help="class of the queue's nodes, where the archive has several"
    )
    parser.add_argument(
        "--processors", metavar="N", type=float, help="size of the pool (default: the archive's nodes)"
    )
    add_options(
        parser, WeeksConfig,
        {"--shifts": "shifts", "--days": "num_train_days", "--anchors": "num_anchors", "--warm": "warm",
         "--between": "between"},
    )  # fmt: skip
    parser.add_argument("--seeds", metavar="N", type=int, default=5, help="indices an anchor (default: 5)")
    parser.add_argument(
        "--ppo-seeds", metavar="N", type=int, help="number of them that PPO starts from (default: 1)"
    )
    parser.add_argument(
        "--index-only",
        action="store_true",
        help="train indices only, without clone and PPO: for many anchors",
    )
    parser.add_argument("--updates", metavar="N", type=int, help="updates of PPO")
    parser.add_argument(
        "--rules-only", action="store_true", help="train nothing: evaluate the published rules"
    )
    parser.add_argument("--quick", action="store_true", help="short training, to check that everything works")
    parser.add_argument(
        "--out", metavar="COMPARISON", type=Path, help="folder to write: report and parameters"
    )
    parser.add_argument("--replace", action="store_true", help="replace a comparison that is already there")


def run(arguments: Namespace) -> int:
    """Train, judge, write the report, show the table; 0."""
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.comparison.products import load_comparison
    from evaluation.comparison.tabulation import tabulate
    from evaluation.problems.ordering.config import as_settings
    from evaluation.problems.ordering.kit import compared
    from evaluation.problems.ordering.running import order_archive, write_order_comparison
    from logs_schema.product import read_manifest, writing

    config = config_of(arguments)
    with progress_of(arguments) as progress:
        if arguments.out is None:
            comparison = order_archive(arguments.archive, config, progress)
        else:
            made_from = {"archive": read_manifest(arguments.archive, "archive").content_hash}
            with writing(
                arguments.out,
                "comparison",
                made_from=made_from,
                config=as_settings(config),
                replace=arguments.replace,
            ) as folder:
                write_order_comparison(folder, arguments.archive, config, progress, title=arguments.out.name)
            comparison = load_comparison(arguments.out)
    text = as_text(tabulate(comparison))
    shown = "\n".join(compared(comparison))
    where = "" if arguments.out is None else f"\nreport: {arguments.out / 'report.html'}"
    show_result(arguments, comparison.to_json(), f"{text}{shown}{where}")
    return 0


def config_of(arguments: Namespace) -> "OrderConfig":
    """The configuration of the arguments."""
    from dataclasses import replace
    from math import gcd

    from evaluation.commands.options import given
    from evaluation.problems.configuration import OrderConfig, WeeksConfig
    from evaluation.problems.ordering.config import quick
    from offline_rl.ordering.programs import OrderTrainingConfig

    weeks = given(WeeksConfig(), arguments)
    training = OrderTrainingConfig(seeds=tuple(range(arguments.seeds)), index_only=arguments.index_only)
    if arguments.ppo_seeds is not None:
        training = replace(training, num_ppo_seeds=arguments.ppo_seeds)
    if arguments.updates is not None:
        training = replace(
            training, num_updates=arguments.updates, look_every=gcd(training.look_every, arguments.updates)
        )
    training_or_none = None if arguments.rules_only else training
    config = OrderConfig(arguments.processors, weeks, training_or_none, pool=arguments.pool)
    return quick(config) if arguments.quick else config

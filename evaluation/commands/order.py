"""`schedtwin order`: orders of a batch queue, trained in the twin of its training days, evaluated by exact replay."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.common_arguments import add_inputs, add_replace
from evaluation.commands.options import add_options, given, refuse_idle, set_fields

if TYPE_CHECKING:
    from evaluation.problems.configuration import OrderConfig

NAME = "order"
HELP = "train orders of a batch queue and evaluate them by exact replay of later weeks"
NUM_SEEDS = 5


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.problems.configuration import OrderConfig, WeeksConfig
    from offline_rl.ordering.programs import OrderTrainingConfig

    add_inputs(parser, "archive")
    add_options(parser, OrderConfig, "pool", "processors")
    add_options(
        parser, WeeksConfig, "shifts", "warm", "between", days="num_train_days", anchors="num_anchors"
    )
    parser.add_argument(
        "--seeds", metavar="N", type=int, help=f"indices an anchor (default: {NUM_SEEDS}, with --quick 1)"
    )
    add_options(parser, OrderTrainingConfig, "index_only", ppo_seeds="num_ppo_seeds", updates="num_updates")
    parser.add_argument(
        "--rules-only", action="store_true", help="train nothing: evaluate the published rules"
    )
    parser.add_argument("--quick", action="store_true", help="short training, to check that everything works")
    parser.add_argument(
        "--out", metavar="COMPARISON", type=Path, help="folder to write: report and parameters"
    )
    add_replace(parser, "comparison")


def run(arguments: Namespace) -> int:
    """Train, judge, write the report, show the table; 0."""
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.comparison.products import load_comparison
    from evaluation.comparison.tabulation import tabulate
    from evaluation.problems.ordering.config import as_settings
    from evaluation.problems.ordering.kit import compared
    from evaluation.problems.ordering.running import order_archive, write_order_comparison
    from logs_schema.packs import content_hash_of
    from logs_schema.product import writing

    config = config_of(arguments)
    with progress_of(arguments) as progress:
        if arguments.out is None:
            comparison = order_archive(arguments.archive, config, progress)
        else:
            made_from = {"archive": content_hash_of(arguments.archive, "archive")}
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

    from evaluation.problems.configuration import OrderConfig, WeeksConfig
    from evaluation.problems.ordering.config import quick
    from offline_rl.ordering.programs import OrderTrainingConfig

    chosen = set_fields(OrderTrainingConfig, arguments)
    if arguments.seeds is not None:
        chosen["seeds"] = tuple(range(arguments.seeds))
    if arguments.rules_only:
        refuse_idle(
            (f"--{name.removeprefix('num_').replace('_', '-')}" for name in chosen),
            "a training that is left out",
            where="--rules-only",
            allowed="--rules-only without them",
            advice="leave one or the other out",
        )
    training = None if arguments.rules_only else OrderTrainingConfig(seeds=tuple(range(NUM_SEEDS)))
    config = given(OrderConfig(weeks=given(WeeksConfig(), arguments), training=training), arguments)
    config = quick(config) if arguments.quick else config
    if (training := config.training) is None:
        return config
    look_every = gcd(training.look_every, chosen.get("num_updates", training.num_updates))
    return replace(config, training=replace(training, **chosen, look_every=look_every))

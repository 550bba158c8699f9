"""`schedtwin bench scaling`: the cost of slot mode against the number of nodes and of environments."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_plot
from evaluation.commands.options import add_options, given

NAME = "scaling"
HELP = "time slot mode against the number of nodes and of environments, and plot it"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.benches.slot_scaling import ScalingConfig

    parser.add_argument("--preset", metavar="NAME", default="kais", help="simulated cluster (default: kais)")
    add_plot(parser)
    add_options(parser, ScalingConfig, "node_factors", "environments")


def run(arguments: Namespace) -> int:
    """Measure; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.reproduction.benches.slot_scaling import (
        ScalingConfig,
        as_json,
        as_text,
        measure_scaling,
        plot_scaling,
    )
    from evaluation.simulator.presets import preset

    world = preset(arguments.preset)
    config = given(ScalingConfig(), arguments)
    total = len(config.node_factors) + len(config.environments)
    with (
        progress_of(arguments) as progress,
        progress.stage("bench scaling", total=total, unit="sizes") as stage,
    ):
        scaling = measure_scaling(world, config, stage)
    if arguments.out is not None:
        plot_scaling(scaling, arguments.out)
    show_result(arguments, as_json(scaling), as_text(scaling))
    return 0

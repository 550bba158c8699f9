"""`schedtwin bench orchestration`: dispatch and orchestration in slot mode, scored over whole days."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_world_arguments
from evaluation.commands.options import add_options, given, numbers, word, words

NAME = "orchestration"
HELP = "score dispatch by slots and orchestration by frames in a simulated cluster"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.problems.orchestration.bench import OrchestrationBenchConfig

    add_world_arguments(parser, "kais")
    parser.add_argument(
        "--days",
        metavar="LIST",
        type=numbers,
        default=(0, 30),
        help="days simulated, with commas; all begin with the deployment of day 0 (default: 0,30)",
    )
    parser.add_argument(
        "--dispatch",
        metavar="LIST",
        type=words,
        default=("random", "least_loaded", "cloud_only", "gsp_ss", "firmament"),
        help="dispatchers to score without orchestration, with commas (default: "
        "random,least_loaded,cloud_only,gsp_ss,firmament)",
    )
    parser.add_argument(
        "--orchestration",
        metavar="LIST",
        type=words,
        help="orchestrators to score, with commas (default: all)",
    )
    parser.add_argument(
        "--frozen",
        metavar="NAME",
        type=word,
        default="least_loaded",
        help="dispatcher during orchestration (default: least_loaded)",
    )
    add_options(
        parser, OrchestrationBenchConfig, seeds="num_seeds", frames="num_frames", changes="frames.num_changes"
    )


def run(arguments: Namespace) -> int:
    """Measure; 0."""
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.problems.orchestration.bench import (
        ORCHESTRATORS,
        OrchestrationBenchConfig,
        bench_orchestration,
        default_pairs,
        with_changes,
    )
    from evaluation.reproduction.benches.orchestration_table import as_json, as_table
    from evaluation.simulator.world_files import chosen_world

    world = chosen_world(arguments.preset, arguments.world)
    pairs = default_pairs(arguments.dispatch, arguments.orchestration or ORCHESTRATORS, arguments.frozen)
    config = given(OrchestrationBenchConfig(), arguments)
    config = with_changes(config, config.frames.num_changes)
    with progress_of(arguments) as progress, progress.stage("bench orchestration", unit="scores") as stage:
        scores = bench_orchestration(world, arguments.days, pairs, config, stage)
    text = as_text(as_table(world, config, scores)).rstrip()
    show_result(arguments, as_json(world, config, scores), text)
    return 0

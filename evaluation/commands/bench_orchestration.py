"""`schedtwin bench orchestration`: dispatch and orchestration in slot mode, scored over whole days."""

from argparse import Namespace, _SubParsersAction

from evaluation.commands.bench_arguments import (
    add_output_arguments,
    add_world_arguments,
    numbers,
    word,
    words,
)

NAME = "orchestration"
HELP = "score dispatch by slots and orchestration by frames in a simulated cluster"


def add_bench(benches: _SubParsersAction) -> None:
    """Declare the bench and its arguments."""
    parser = benches.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(bench=run)
    add_world_arguments(parser, "kais")
    parser.add_argument(
        "--days", metavar="LIST", type=numbers, default=(0, 30),
        help="days simulated, with commas; all begin with the deployment of day 0 (default: 0,30)",
    )  # fmt: skip
    parser.add_argument(
        "--dispatch", metavar="LIST", type=words,
        default=("random", "least_loaded", "cloud_only", "gsp_ss", "firmament"),
        help="dispatchers to score without orchestration, with commas (default: "
        "random,least_loaded,cloud_only,gsp_ss,firmament)",
    )  # fmt: skip
    parser.add_argument(
        "--orchestration", metavar="LIST", type=words,
        help="orchestrators to score, with commas (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--frozen", metavar="NAME", type=word, default="least_loaded",
        help="dispatcher during orchestration (default: least_loaded)",
    )  # fmt: skip
    parser.add_argument("--seeds", metavar="N", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument(
        "--frames", metavar="N", type=int, help="number of frames of a day (default: the whole day)"
    )
    parser.add_argument(
        "--changes", metavar="N", type=int, default=2, help="replicas that a frame may change (default: 2)"
    )
    add_output_arguments(parser)


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
    config = OrchestrationBenchConfig(num_seeds=arguments.seeds, num_frames=arguments.frames)
    config = with_changes(config, arguments.changes)
    with (
        progress_of(arguments) as progress,
        progress.stage("bench orchestration", unit="scores") as stage,
    ):
        scores = bench_orchestration(
            world, arguments.days, pairs, config, lambda done, what: stage(done, text=what)
        )
    text = as_text(as_table(world, config, scores)).rstrip()
    show_result(arguments, as_json(world, config, scores), text)
    return 0

"""`schedtwin bench orchestration`: dispatch and orchestration in slot mode, scored over whole days."""

from argparse import SUPPRESS, ArgumentTypeError, Namespace, _SubParsersAction

NAME = "orchestration"
HELP = "score dispatch by slots and orchestration by frames in a simulated cluster"


def add_bench(benches: _SubParsersAction) -> None:
    """Declare the bench and its arguments."""
    parser = benches.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(bench=run)
    parser.add_argument("--preset", metavar="NAME", default="kais", help="simulated cluster (default: kais)")
    parser.add_argument(
        "--days", metavar="LIST", type=_numbers, default=(0, 30),
        help="days lived, with commas; all begin with the deployment of day 0 (default: 0,30)",
    )  # fmt: skip
    parser.add_argument(
        "--dispatch", metavar="LIST", type=_words,
        default=("random", "least_loaded", "cloud_only", "gsp_ss", "firmament"),
        help="who dispatches while nobody orchestrates, with commas (default: "
        "random,least_loaded,cloud_only,gsp_ss,firmament)",
    )  # fmt: skip
    parser.add_argument(
        "--orchestration", metavar="LIST", type=_words,
        help="who orchestrates, with commas (default: everybody who can)",
    )  # fmt: skip
    parser.add_argument(
        "--frozen", metavar="NAME", type=_word, default="least_loaded",
        help="who dispatches meanwhile (default: least_loaded)",
    )  # fmt: skip
    parser.add_argument("--seeds", metavar="N", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument("--frames", metavar="N", type=int, help="cut a day short after so many frames")
    parser.add_argument(
        "--changes", metavar="N", type=int, default=2, help="replicas that a frame may change (default: 2)"
    )
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
    parser.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="show no progress")


def run(arguments: Namespace) -> int:
    """Measure; 0."""
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.orchestration_bench import (
        ORCHESTRATORS,
        OrchestrationBenchConfig,
        bench_orchestration,
        usual_pairs,
        with_changes,
    )
    from evaluation.orchestration_table import as_json, as_table
    from evaluation.simulator.presets import preset

    world = preset(arguments.preset)
    pairs = usual_pairs(arguments.dispatch, arguments.orchestration or ORCHESTRATORS, arguments.frozen)
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


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,30") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(_word(word) for word in text.split(","))


def _word(text: str) -> str:
    return text.strip().replace("-", "_")

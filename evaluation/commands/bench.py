"""`schedtwin bench`: measurements that others can repeat."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

NAME = "bench"
HELP = "measure: how far a simulated cluster tells policies apart"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the benches and their arguments."""
    benches = parser.add_subparsers(title="benches", metavar="BENCH", required=True)
    truth = benches.add_parser("truth", help="score baselines in a simulated cluster, on several days")
    truth.set_defaults(bench=_truth)
    truth.add_argument("--preset", metavar="NAME", default="kais", help="simulated cluster (default: kais)")
    truth.add_argument(
        "--days", metavar="LIST", type=_numbers, default=(0, 1, 7, 30),
        help="days after day 0, with commas (default: 0,1,7,30)",
    )  # fmt: skip
    truth.add_argument("--seeds", metavar="N", type=int, default=5, help="repetitions (default: 5)")
    truth.add_argument(
        "--policies", metavar="LIST", type=_words, help="baselines, with commas (default: those of the proof)"
    )
    truth.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
    truth.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="do not show progress")


def run(arguments: Namespace) -> int:
    """Run the bench that was asked for; 0."""
    return int(arguments.bench(arguments))


def _truth(arguments: Namespace) -> int:
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.simulator.presets import preset
    from evaluation.truth_bench import SHOWN, TruthBenchConfig, bench_truth
    from evaluation.truth_proof import as_json, as_table

    world = preset(arguments.preset)
    config = TruthBenchConfig(num_seeds=arguments.seeds)
    policies = arguments.policies or SHOWN
    with progress_of(arguments) as progress, progress.stage("bench truth", unit="scores") as stage:
        scores = bench_truth(
            world,
            arguments.days,
            config,
            policies=policies,
            progress=lambda done, what: stage(done, text=what),
        )
    show_result(arguments, as_json(world, config, scores), as_text(as_table(world, scores)).rstrip())
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,1,7,30") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip().replace("-", "_") for word in text.split(","))

"""`schedtwin bench`: measurements that others can repeat."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

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
    truth.add_argument(
        "--oracle", metavar="ORACLE", type=Path, action="append", default=[],
        help="folder written by schedtwin bench oracle; may be given for several days",
    )  # fmt: skip
    oracle = benches.add_parser("oracle", help="train PPO in a simulated cluster itself, as a reference")
    oracle.set_defaults(bench=_oracle)
    oracle.add_argument("--preset", metavar="NAME", default="kais", help="simulated cluster (default: kais)")
    oracle.add_argument("--day", metavar="N", type=int, default=0, help="day to train on (default: 0)")
    oracle.add_argument("--updates", metavar="N", type=int, help="updates of PPO (default: 150)")
    oracle.add_argument("--seed", metavar="N", type=int, default=0, help="seed (default: 0)")
    oracle.add_argument("--out", metavar="ORACLE", required=True, type=Path, help="folder to write")
    oracle.add_argument("--replace", action="store_true", help="replace an oracle that is already there")
    for bench in (truth, oracle):
        bench.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
        bench.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="show no progress")


def run(arguments: Namespace) -> int:
    """Run the bench that was asked for; 0."""
    return int(arguments.bench(arguments))


def _truth(arguments: Namespace) -> int:
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.oracle import load_oracle
    from evaluation.simulator.presets import preset
    from evaluation.truth_bench import SHOWN, TruthBenchConfig, bench_truth
    from evaluation.truth_proof import as_json, as_table

    world = preset(arguments.preset)
    config = TruthBenchConfig(num_seeds=arguments.seeds)
    policies = arguments.policies or SHOWN
    oracles = [load_oracle(path, world, config.depth) for path in arguments.oracle]
    with progress_of(arguments) as progress, progress.stage("bench truth", unit="scores") as stage:
        scores = bench_truth(
            world,
            arguments.days,
            config,
            policies=policies,
            oracles=oracles,
            progress=lambda done, what: stage(done, text=what),
        )
    show_result(arguments, as_json(world, config, scores), as_text(as_table(world, scores)).rstrip())
    return 0


def _oracle(arguments: Namespace) -> int:
    from evaluation.commands.output import progress_of, show_result
    from evaluation.oracle import OracleConfig, write_oracle
    from evaluation.simulator.presets import preset

    world, config = preset(arguments.preset), OracleConfig()
    if arguments.updates is not None:
        config = OracleConfig(num_updates=arguments.updates)
    total = config.clone_updates + config.num_updates
    with progress_of(arguments) as progress, progress.stage("oracle", total=total, unit="updates") as stage:
        facts = write_oracle(
            world, arguments.day, config, arguments.out, seed=arguments.seed, replace=arguments.replace,
            progress=lambda done, what: stage(done, text=what),
        )  # fmt: skip
    text = (
        f"{arguments.out} written: an oracle of {world.name}, day {arguments.day}\n"
        f"next: schedtwin bench truth --preset {world.name} --oracle {arguments.out}"
    )
    show_result(arguments, facts, text)
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,1,7,30") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip().replace("-", "_") for word in text.split(","))

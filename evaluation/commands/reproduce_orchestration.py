"""`schedtwin reproduce kais` and `schedtwin reproduce kmps`: dispatch and orchestration, evaluated in the truth."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from evaluation.commands.bench_arguments import add_output_arguments, numbers, words

TABLES = {
    "kais": "dispatch and orchestration as KaiS compares them (Han et al. 2021)",
    "kmps": "dispatch and orchestration as KMPS compares them (Huang et al.)",
}
CARRY_OVER, CENTRAL = "carry_over", "central"
FIGURES = (CARRY_OVER, CENTRAL)


def add_tables(tables: _SubParsersAction) -> None:
    """Declare both tables and their arguments."""
    for name, text in TABLES.items():
        parser = tables.add_parser(name, help=text, description=text)
        parser.set_defaults(reproduce=run, table=name)
        parser.add_argument(
            "--world", metavar="WORLD.toml", type=Path,
            help=f"file that declares another cluster than the preset {name}",
        )  # fmt: skip
        parser.add_argument("--days", metavar="LIST", type=numbers, help="test days (default: 0,1,7,30)")
        parser.add_argument("--frames", metavar="N", type=int, help="frames of a test day (default: 60)")
        parser.add_argument(
            "--seeds", metavar="N", type=int, help="repetitions of every test day (default: 5)"
        )
        parser.add_argument(
            "--repeats", metavar="N", type=int, default=1,
            help="make the table N times, each with a world, log, twin and trainings of its own, and show means with "
            "intervals over them (default: 1)",
        )  # fmt: skip
        parser.add_argument(
            "--seed", metavar="N", type=int, default=0,
            help="of world and log, of several repeats also of trainings and runs; the second has N + 1 (default: 0)",
        )  # fmt: skip
        parser.add_argument(
            "--learned", metavar="LIST", type=words,
            help="learners trained in the twin: residual, residual_any_size, mappo, cmmac, cmmac_central, ac, ddpg, "
            "gpg, gpo, gpo_without_gnn, gpo_single_critic, or none (default: all; with --quick residual)",
        )  # fmt: skip
        parser.add_argument(
            "--updates", metavar="N", type=int,
            help="updates of everything that is trained (default: 40; with --quick 4)",
        )  # fmt: skip
        parser.add_argument(
            "--figure", metavar="NAME", choices=FIGURES,
            help="instead of the table: carry_over (trained on this cluster, judged on the preset large), or central "
            "(dispatch at access points and in one place, by load and delay)",
        )  # fmt: skip
        parser.add_argument(
            "--quick",
            action="store_true",
            help="day 30 alone, 8 frames, 3 seeds, one lookahead, one short training",
        )
        parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path(name),
                            help=f"work folder (default: ./{name})")  # fmt: skip
        add_output_arguments(parser)


def run(arguments: Namespace) -> int:
    """Simulate the logs, fit, train, evaluate, and print the table; 0."""
    import json
    from dataclasses import replace
    from functools import partial

    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.carry_over import carry_over
    from evaluation.reproduction.centralised import centralised
    from evaluation.reproduction.orchestration import (
        QUICK_LEARNERS,
        OrchestrationConfig,
        quick,
        twin_of,
    )
    from evaluation.reproduction.orchestration_learners import learners
    from evaluation.reproduction.orchestration_repeats import repeated
    from evaluation.reproduction.showing_orchestration import as_tables
    from evaluation.simulator.world_files import chosen_world
    from offline_rl.orchestration_config import QUICK_BUDGET, TrainingBudget

    config = OrchestrationConfig()
    config = quick(config) if arguments.quick else config
    given = {"num_frames": arguments.frames, "num_seeds": arguments.seeds}
    bench = replace(config.bench, **{name: value for name, value in given.items() if value is not None})
    days = config.days if arguments.days is None else arguments.days
    config = replace(config, bench=bench, days=days, seed=arguments.seed)
    budget = QUICK_BUDGET if arguments.quick else TrainingBudget()
    if arguments.updates is not None:
        budget = replace(budget, num_updates=arguments.updates)
    chosen = learners(budget, arguments.learned or (QUICK_LEARNERS if arguments.quick else None))
    worlds, out = partial(chosen_world, arguments.table, arguments.world), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with progress_of(arguments) as progress:
        if arguments.figure == CARRY_OVER:
            found = carry_over(
                (worlds(config.seed), chosen_world("large", None)), config, budget, out, progress
            )
        elif arguments.figure == CENTRAL:
            fitted = twin_of(worlds(config.seed), config, bench, out, progress)
            found = centralised(worlds(config.seed), config.days[0], bench, fitted, progress)
        else:
            found = repeated(worlds, config, arguments.repeats, out, chosen, progress)
    name = arguments.figure or arguments.table
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    show_result(arguments, found, as_text(as_tables(found)).rstrip())
    return 0

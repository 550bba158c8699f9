"""`schedtwin reproduce kais` and `schedtwin reproduce kmps`: dispatch and orchestration, evaluated in the truth."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path

from evaluation.commands.actions import Action
from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.options import add_options, given, refuse_idle, set_fields, words

HELP = {
    "kais": "dispatch and orchestration as KaiS compares them (Han et al. 2021)",
    "kmps": "dispatch and orchestration as KMPS compares them (Huang et al.)",
}
CARRY_OVER, CENTRAL = "carry_over", "central"
FIGURES = (CARRY_OVER, CENTRAL)


def add_arguments(table: str, parser: ArgumentParser) -> None:
    """Declare the arguments of one of the tables."""
    from evaluation.reproduction.orchestration import OrchestrationConfig
    from offline_rl.orchestration.config import TrainingBudget

    parser.add_argument(
        "--world",
        metavar="WORLD.toml",
        type=Path,
        help=f"file that declares another cluster than the preset {table}",
    )
    add_options(
        parser, OrchestrationConfig, "days", "seed", frames="bench.num_frames", seeds="bench.num_seeds"
    )
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=int,
        default=1,
        help="make the table N times, each with a world, log, twin and trainings of its own, from --seed on, and show "
        "means with intervals over them (default: 1)",
    )
    parser.add_argument(
        "--learned",
        metavar="LIST",
        type=words,
        help="learners trained in the twin: residual, residual_central, residual_any_size, mappo, cmmac, "
        "cmmac_central, ac, ddpg, gpg, gpg_kais_reward, gpo, gpo_kmps_reward, gpo_without_gnn, "
        "gpo_single_critic, planned_tuned, gpg_tuned; residual, kais or kmps with _joint or _alternating, both sides "
        "in one trajectory; or none (default: all; with --quick residual)",
    )
    parser.add_argument(
        "--untrained",
        metavar="LIST",
        type=words,
        help="baselines and rivals that are judged, by the names of their rows (default: all; with --quick fewer)",
    )
    add_options(parser, TrainingBudget, updates="num_updates", plans="num_plans")
    parser.add_argument(
        "--figure",
        metavar="NAME",
        choices=FIGURES,
        help="instead of the table: carry_over (trained on this cluster, judged on the preset large), or central "
        "(dispatch at access points and in one place, by load and delay)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="day 30 alone, 8 frames, 3 seeds, one lookahead, one short training",
    )
    add_work_folder(parser, table)


def run(table: str, arguments: Namespace) -> int:
    """Simulate the logs, fit, train, evaluate, and print the table; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.jobs.job import alone_in
    from evaluation.reproduction.carry_over import carry_over
    from evaluation.reproduction.centralised import centralised
    from evaluation.reproduction.orchestration import QUICK_LEARNERS, OrchestrationConfig, quick, twin_of
    from evaluation.reproduction.orchestration_learners import learners
    from evaluation.reproduction.orchestration_pairs import pairs_named
    from evaluation.reproduction.orchestration_repeats import repeated
    from evaluation.reproduction.showing_orchestration import as_tables
    from evaluation.simulator.world_files import chosen_world
    from offline_rl.orchestration.config import QUICK_BUDGET, TrainingBudget

    if arguments.figure:
        _refuse_idle(arguments)
    config = OrchestrationConfig()
    config = given(quick(config) if arguments.quick else config, arguments)
    if arguments.untrained:
        config = replace(config, untrained=pairs_named(arguments.untrained, OrchestrationConfig().untrained))
    budget = given(QUICK_BUDGET if arguments.quick else TrainingBudget(), arguments)
    chosen = learners(budget, arguments.learned or (QUICK_LEARNERS if arguments.quick else None))
    worlds, out = partial(chosen_world, table, arguments.world), arguments.out
    # Another run would replace the log that this one fits
    with alone_in(out), progress_of(arguments) as progress:
        if arguments.figure == CARRY_OVER:
            found = carry_over(
                (worlds(config.seed), chosen_world("large", None)), config, budget, out, progress
            )
        elif arguments.figure == CENTRAL:
            fitted = twin_of(worlds(config.seed), config, config.bench, out, progress)
            found = centralised(worlds(config.seed), config.days[0], config.bench, fitted, progress)
        else:
            found = repeated(worlds, config, arguments.repeats, out, chosen, progress)
    name = arguments.figure or table
    keep_and_show(arguments, out / f"{name}.json", found, as_tables(found))
    return 0


def _refuse_idle(arguments: Namespace) -> None:
    """ConfigError where options say something of the table that a figure does not read."""
    from evaluation.reproduction.orchestration import OrchestrationConfig
    from offline_rl.orchestration.config import TrainingBudget

    given_days = set_fields(OrchestrationConfig, arguments).get("days", ())
    of_central = {
        "--updates, --plans": bool(set_fields(TrainingBudget, arguments)),
        "--days of several days": len(given_days) > 1,
    }
    idle = {
        "--repeats": arguments.repeats != 1,
        "--learned": bool(arguments.learned),
        "--untrained": bool(arguments.untrained),
    } | (of_central if arguments.figure == CENTRAL else {})
    refuse_idle(
        (option for option, is_given in idle.items() if is_given),
        f"the figure {arguments.figure}",
        where="reproduce --figure",
        allowed="options of the log, and of what is simulated",
        advice="leave them out, or make the table, without --figure",
    )


TABLES = tuple(
    Action(name, text, partial(add_arguments, name), partial(run, name)) for name, text in HELP.items()
)
"""Both tables, as actions of the command."""

"""`schedtwin reproduce table2`: the project's main table, from the simulation of the log on."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.common_arguments import (
    add_reference_arguments,
    add_world_arguments,
    refuse_idle_references,
)
from evaluation.commands.engine_arguments import add_engine_arguments, engine_from
from evaluation.commands.options import add_options, given

if TYPE_CHECKING:
    from evaluation.reproduction.table2 import Table2Config
    from logs_schema.progress import Progress

NAME, FILE = "table2", "table2.json"
HELP = (
    "a scheduler trained in the twin, compared with cloning and offline learners, in the truth of later days"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.table2 import Table2Config

    add_world_arguments(parser, Table2Config.preset)
    add_options(
        parser, Table2Config, "behaviour", "train_day", "view", "seed", shifts="days", requests="num_requests"
    )
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=int,
        default=1,
        help="make the table for N seeds from --seed on, and their means with intervals over seeds (default: 1)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="short run: less training, two seeds, the beginning of the days"
    )
    parser.add_argument(
        "--unguarded",
        action="store_true",
        help="ablation: train in a single model, without the measures against exploitation of model errors",
    )
    parser.add_argument(
        "--uncertified",
        action="store_true",
        help="make no certificate of the twin: the ladder takes small gains as well",
    )
    parser.add_argument(
        "--no-log-learners",
        action="store_true",
        help="leave out what is learned from the log alone, but the clone",
    )
    parser.add_argument(
        "--reference-updates",
        metavar="N",
        type=int,
        help="initial updates of a reference, doubled while the value improves (default: 20, quick 8)",
    )
    add_reference_arguments(parser)
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="work folder (default: ./table2 with the chosen options)"
    )
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Compute what is missing and print the table; 0."""
    from dataclasses import replace

    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.repeats import repeated
    from evaluation.reproduction.showing_table2 import as_table
    from logs_schema.errors import ConfigError

    refuse_idle_references(arguments)
    if arguments.repeats < 1:
        raise ConfigError(f"{arguments.repeats} repeats", where="--repeats", allowed="1 and more")
    config = _configured(arguments)
    workdir = arguments.out or Path(_folder_name(config, arguments.quick))
    seeds = range(config.seed, config.seed + arguments.repeats)
    with progress_of(arguments) as progress:

        def make(seed: int) -> dict[str, Any]:
            if arguments.repeats == 1:
                return _table_of_seed(arguments, config, workdir, progress)
            progress.note(f"seed {seed}, {seeds.index(seed) + 1} of {len(seeds)}")
            return _table_of_seed(arguments, replace(config, seed=seed), workdir / f"seed{seed}", progress)

        found = repeated(seeds, make)
    keep_and_show(arguments, workdir / FILE, found, as_table(found))
    return 0


def _configured(arguments: Namespace) -> "Table2Config":
    from dataclasses import replace

    from evaluation.reproduction.table2 import Table2Config, quick, unguarded

    world = "" if arguments.world is None else str(arguments.world)
    config = given(Table2Config(arguments.preset, world=world), arguments)
    config = quick(config) if arguments.quick else config
    config = replace(config, certified=not arguments.uncertified)
    config = unguarded(config) if arguments.unguarded else config
    if arguments.no_log_learners:
        config = replace(config, train=replace(config.train, from_logs=()))
    if arguments.reference_updates is not None:
        config = replace(config, reference=config.reference.of_length(arguments.reference_updates))
    return config


def _table_of_seed(
    arguments: Namespace, config: "Table2Config", workdir: Path, progress: "Progress"
) -> dict[str, Any]:
    """The table of one seed, also written into its work folder; raises BeatenReferenceError."""
    import json

    from evaluation.certify.persistence import KIND, certification_in
    from evaluation.commands.bench import trained_references
    from evaluation.reproduction.ceiling import refuse_beaten
    from evaluation.reproduction.table2 import table, train_all
    from evaluation.reproduction.table2_days import simulate_days, simulate_references
    from offline_rl.recipes.schedulers import load_schedulers

    engine, references = engine_from(arguments), []
    if not arguments.no_reference:
        references = trained_references(
            config.simulated, config.simulated_days, arguments.references, progress, config.reference, engine
        )
    products = train_all(config, workdir, progress, engine)
    simulated = simulate_days(config, products, references, progress)
    schedulers = load_schedulers(products["policy"])[0]
    certification = certification_in(products[KIND]) if config.certified else None
    found = table(config, simulated, schedulers, references, certification=certification)
    if found["beaten"]:
        days = sorted({config.train_day + one["shift_days"] for one in found["beaten"]})
        progress.note(f"the reference is beaten on days {days}: it is trained for longer")
        longer = config.reference.of_length(4 * config.reference.num_updates)
        again = trained_references(config.simulated, days, arguments.references, progress, longer, engine)
        simulated |= simulate_references(config, products, again, progress)
        references = [kept for kept in references if kept.reference.day not in days] + again
        found = table(config, simulated, schedulers, references, certification=certification)
    path = workdir / FILE
    path.write_text(json.dumps(found, indent=1) + "\n")
    refuse_beaten(found, str(path))
    return found


def _folder_name(config: "Table2Config", is_quick: bool) -> str:
    parts = ["table2", config.simulated.name, config.behaviour]
    parts += [f"day{config.train_day}"] if config.train_day else []
    parts += [f"{config.num_requests}requests"] if config.num_requests else []
    parts += [config.view] if config.view != "full" else []
    parts += [f"seed{config.seed}"] if config.seed else []
    is_unguarded = config.twin.num_members == 1
    parts += ["unguarded"] if is_unguarded else []
    parts += [] if config.certified or is_unguarded else ["uncertified"]
    parts += [] if config.train.from_logs or is_unguarded else ["no-log-learners"]
    return "-".join([*parts, *(["quick"] if is_quick else [])])

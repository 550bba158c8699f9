"""Functions that single steps share: an optional configuration file, and writing one product."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.common_arguments import add_out
from evaluation.commands.engine_arguments import engine_from
from evaluation.commands.options import add_options, given, seed

if TYPE_CHECKING:
    from evaluation.problems.configuration import RunConfig
    from evaluation.problems.kit import StepPlan
    from evaluation.problems.options import ProblemOptions


def add_step_arguments(parser: ArgumentParser, product: str) -> None:
    """Declare the arguments of every single step."""
    add_out(parser, product)
    add_config_arguments(parser)


def add_config_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments that `settings_of` reads."""
    parser.add_argument("--config", metavar="CONFIG.toml", type=Path, help="settings, as for `schedtwin run`")
    parser.add_argument("--seed", metavar="N", type=seed, help="seed (default: the configuration's)")


def add_problem_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments that choose the problem of a log."""
    from evaluation.problems.options import ProblemOptions

    add_options(parser, ProblemOptions, "problem", "pool", "processors")


def options_of(arguments: Namespace) -> "ProblemOptions":
    """The values of the arguments that `add_problem_arguments` declares."""
    from evaluation.problems.options import ProblemOptions

    return given(ProblemOptions(), arguments)


def settings_of(arguments: Namespace) -> "RunConfig":
    """The configuration with seed and engine of the command line; prints a warning if its log does not exist."""
    import sys
    from dataclasses import replace

    from evaluation.problems.configuration import RunConfig, load_config

    config = load_config(arguments.config) if arguments.config is not None else RunConfig()
    paths = config.log.paths if config.log is not None else ()
    gone = [path for path in paths if not (arguments.config.parent / path).exists()]
    if gone:
        message = f"[log] paths of {arguments.config} do not exist: {', '.join(gone)}"
        print(
            f"warning: {message}; this step reads products only, schedtwin run would refuse", file=sys.stderr
        )
    if "on" in arguments:
        config = replace(config, engine=engine_from(arguments, config.engine))
    return config if arguments.seed is None else replace(config, seed=arguments.seed)


def make_step(
    arguments: Namespace, plan: "StepPlan", inputs: Mapping[str, Path], *, out: Path | None = None
) -> dict[str, Any]:
    """Builds one step's product in a temporary folder and renames it to `out` (default: `--out`); returns its facts."""
    from evaluation.commands.output import progress_of
    from logs_schema.packs import content_hash_of
    from logs_schema.product import writing
    from logs_schema.records import to_plain

    hashes = {name: content_hash_of(path) for name, path in inputs.items()}
    extra: dict[str, Any] = {}
    with (
        progress_of(arguments) as progress,
        writing(
            out or arguments.out,
            plan.kind,
            made_from=hashes | {"code": str(plan.code_version)},
            config=to_plain(plan.settings),
            seed=plan.seed,
            extra=extra,
            replace=out is not None or arguments.replace,
        ) as folder,
    ):
        extra.update(plan.build(folder, inputs, progress) or {})
    return extra

"""Functions that single steps share: an optional configuration file, and writing one product."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.engine_arguments import engine_from

if TYPE_CHECKING:
    from evaluation.problems.configuration import RunConfig
    from evaluation.problems.kit import ProblemOptions, StepPlan


def add_step_arguments(parser: ArgumentParser, product: str) -> None:
    """Declare the arguments of every single step."""
    parser.add_argument("--out", metavar=product.upper(), required=True, type=Path, help="folder to write")
    parser.add_argument("--config", metavar="CONFIG.toml", type=Path, help="settings, as for `schedtwin run`")
    parser.add_argument("--seed", metavar="N", type=int, help="seed (default: the configuration's)")
    parser.add_argument("--replace", action="store_true", help=f"replace a {product} that is already there")


def add_problem_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments that choose the problem of a log."""
    parser.add_argument(
        "--problem", metavar="NAME",
        help="placement (which node takes a request), ordering (which waiting job of a batch queue starts next), "
        "autoscaling (the resources granted to deployments of an application), assignment (which edge takes each "
        "of many requests at once) or another that has a kit (see "
        "evaluation/problems; default: ordering where the archive has one pool only or the configuration has a table "
        "[order], autoscaling where the archive has deployment_samples only, else placement)",
    )  # fmt: skip
    parser.add_argument(
        "--pool", metavar="NAME",
        help="of the ordering problem: class of the queue's nodes, where the archive has several",
    )  # fmt: skip
    parser.add_argument(
        "--processors", metavar="N", type=float,
        help="of the ordering problem: size of the pool (default: the archive's nodes)",
    )  # fmt: skip


def options_of(arguments: Namespace) -> "ProblemOptions":
    """The values of the arguments that `add_problem_arguments` declares."""
    from evaluation.problems.kit import ProblemOptions

    return ProblemOptions(arguments.problem, arguments.processors, arguments.pool)


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
    if "workers" in arguments:
        config = replace(config, engine=engine_from(arguments, config.engine))
    return config if arguments.seed is None else replace(config, seed=arguments.seed)


def make_step(
    arguments: Namespace, plan: "StepPlan", inputs: Mapping[str, Path], *, out: Path | None = None
) -> dict[str, Any]:
    """Builds one step's product in a temporary folder and renames it to `out` (default: `--out`); returns its facts."""
    from evaluation.commands.output import progress_of
    from logs_schema.product import read_manifest, writing
    from logs_schema.records import to_plain

    hashes = {name: read_manifest(path).content_hash for name, path in inputs.items()}
    extra: dict[str, Any] = {}
    with (
        progress_of(arguments) as progress,
        writing(
            out or arguments.out, plan.kind, made_from=hashes | {"code": str(plan.code_version)},
            config=to_plain(plan.settings), seed=plan.seed, extra=extra, replace=out is not None or arguments.replace,
        ) as folder,
    ):  # fmt: skip
        extra.update(plan.build(folder, inputs, progress) or {})
    return extra

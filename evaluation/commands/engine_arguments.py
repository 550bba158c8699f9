"""The arguments of a command's task engine: `--workers`, `--on`, `--deadline`."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from evaluation.commands.options import add_options, set_fields

if TYPE_CHECKING:
    from evaluation.jobs.engine.config import EngineConfig
    from evaluation.problems.kit import Kit


def add_engine_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.jobs.engine.config import EngineConfig

    group = parser.add_argument_group("where tasks run")
    add_options(group, EngineConfig, "workers", deadline="deadline_s")
    group.add_argument(
        "--on",
        metavar="WHERE",
        help="ray://HOST:PORT, a Ray cluster; or local-cluster, two Ray nodes on this machine, for trials",
    )


def refuse_idle_engine(arguments: Namespace, kit: "Kit", step: str) -> None:
    """ConfigError where tasks are asked for, and the problem makes the step without any."""
    from evaluation.jobs.engine.config import EngineConfig
    from logs_schema.errors import ConfigError

    fields = set_fields(EngineConfig, arguments)
    asked = {"--workers": fields.get("workers"), "--on": arguments.on, "--deadline": fields.get("deadline_s")}
    given = [
        f"{name} {value:g}" if name != "--on" else f"{name} {value}" for name, value in asked.items() if value
    ]
    if fields.get("workers") == 1 and len(given) == 1:
        return
    if given and step not in kit.tasks:
        raise ConfigError(
            f"the problem '{kit.name}' has no tasks in {step}: it runs in one process",
            where=", ".join(given),
            allowed="none of these options",
            advice="leave them out",
        )


def engine_from(arguments: Namespace, configured: "EngineConfig | None" = None) -> "EngineConfig":
    """The engine of the command line, with defaults from the configuration."""
    from evaluation.jobs.engine.config import EngineConfig, engine_of

    fields = set_fields(EngineConfig, arguments)
    return engine_of(
        arguments.on, fields.get("workers"), fields.get("deadline_s"), configured or EngineConfig()
    )

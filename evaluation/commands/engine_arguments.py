"""The arguments of a command's task engine: `--workers`, `--on`, `--deadline`."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluation.jobs.engine.config import EngineConfig
    from evaluation.problems.kit import Kit


def add_engine_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    group = parser.add_argument_group("where tasks run")
    group.add_argument(
        "--workers", metavar="N", type=int, help="tasks at once, each in a process (default: 1)"
    )
    group.add_argument(
        "--on", metavar="WHERE",
        help="ray://HOST:PORT, a Ray cluster; or local-cluster, two Ray nodes on this machine, for trials",
    )  # fmt: skip
    group.add_argument(
        "--deadline", metavar="S", type=float, help="most seconds that a task may take (default: 3600)"
    )


def refuse_idle_engine(arguments: Namespace, kit: "Kit", step: str) -> None:
    """ConfigError where tasks are asked for, and the problem makes the step without any."""
    from logs_schema.errors import ConfigError

    asked = {"--workers": arguments.workers, "--on": arguments.on, "--deadline": arguments.deadline}
    given = [
        f"{name} {value:g}" if name != "--on" else f"{name} {value}" for name, value in asked.items() if value
    ]
    if arguments.workers == 1 and len(given) == 1:
        return
    if given and step not in kit.tasks:
        raise ConfigError(
            f"the problem '{kit.name}' has no tasks in {step}: it runs in one process", where=", ".join(given),
            allowed="none of these options", advice="leave them out",
        )  # fmt: skip


def engine_from(arguments: Namespace, configured: "EngineConfig | None" = None) -> "EngineConfig":
    """The engine of the command line, with defaults from the configuration."""
    from evaluation.jobs.engine.config import EngineConfig, engine_of

    return engine_of(arguments.on, arguments.workers, arguments.deadline, configured or EngineConfig())

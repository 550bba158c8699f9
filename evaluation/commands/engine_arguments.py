"""Where a command's tasks run: `--workers`, `--on`, `--deadline`."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluation.engine.config import EngineConfig


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


def engine_from(arguments: Namespace, configured: "EngineConfig | None" = None) -> "EngineConfig":
    """What the command line asks for; where it is silent, what the configuration says."""
    from evaluation.engine.config import EngineConfig, engine_of

    return engine_of(arguments.on, arguments.workers, arguments.deadline, configured or EngineConfig())

"""Configuration of the task engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.jobs.engine.local import LocalTasks
from logs_schema.errors import ConfigError
from logs_schema.mapping import TaskMap
from logs_schema.progress import Progress

LOCAL, RAY, LOCAL_CLUSTER = "local", "ray", "local-cluster"
ADDRESS = "ray://"


@dataclass(frozen=True)
class EngineConfig:
    """Where tasks run.

    Attributes:
        kind: "local", processes of this machine; "ray", a Ray cluster; "local-cluster", two Ray nodes on this machine
            for the duration of the command, for trials.
        workers: Tasks at once, each in a process; on a Ray cluster the number of its processors.
        address: Address of the Ray cluster, ray://HOST:PORT.
        deadline_s: Most seconds that a task may take.
    """

    kind: str = LOCAL
    workers: int = 1
    address: str | None = None
    deadline_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.kind not in (LOCAL, RAY, LOCAL_CLUSTER):
            raise ConfigError(
                f"kind = {self.kind!r}", where="where tasks run", allowed=f"{LOCAL}, {RAY}, {LOCAL_CLUSTER}"
            )
        if (self.kind == RAY) != (self.address is not None) or not (self.address or ADDRESS).startswith(
            ADDRESS
        ):
            raise ConfigError(
                f"kind = {self.kind!r} with address = {self.address!r}",
                where="where tasks run",
                allowed='kind = "ray" with address = "ray://HOST:PORT", or another kind without an address',
            )
        if self.workers < 1 or not self.deadline_s > 0.0:
            raise ConfigError(
                f"workers = {self.workers}, deadline_s = {self.deadline_s:g}",
                where="where tasks run",
                allowed="1 or more workers and a positive deadline",
            )

    @property
    def is_here(self) -> bool:
        """Whether everything runs in this process."""
        return self.kind == LOCAL and self.workers == 1


HERE = EngineConfig()
"""Everything in this process."""


def engine_of(
    on: str | None, workers: int | None, deadline_s: float | None, configured: EngineConfig = HERE
) -> EngineConfig:
    """The engine of a command line, by default as configured; ConfigError for an unknown place."""
    given = {"workers": workers, "deadline_s": deadline_s}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if on is None:
        return replace(configured, **known)
    if on == LOCAL_CLUSTER:
        return replace(configured, kind=LOCAL_CLUSTER, address=None, **{"workers": 2} | known)
    if on.startswith(ADDRESS):
        return replace(configured, kind=RAY, address=on, **known)
    raise ConfigError(
        f"tasks cannot run on {on!r}", where="--on", allowed=f"{ADDRESS}HOST:PORT or {LOCAL_CLUSTER}"
    )


@contextmanager
def tasks_on(
    config: EngineConfig, progress: Progress, shared: Sequence[Path] = (), *, apart: bool = False
) -> Iterator[TaskMap]:
    """The task map of an engine, for the duration of the block.

    Args:
        config: The engine.
        progress: Progress display.
        shared: Files and folders that tasks must have access to; of folders that do not exist yet, a parent is checked.
        apart: Whether tasks run in other processes even where there is one worker only.

    Raises:
        ConfigError: No such cluster, different versions, or paths without access from workers: before any task runs.
    """
    if config.kind == LOCAL:
        with LocalTasks(config.workers, config.deadline_s, progress, apart=apart) as tasks:
            yield tasks
        return
    from evaluation.jobs.engine.ray_cluster import connected
    from evaluation.jobs.engine.ray_tasks import RayTasks

    with connected(config.address, config.workers, shared) as ray:
        yield RayTasks(ray, config.deadline_s, progress)

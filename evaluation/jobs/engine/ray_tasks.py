"""Tasks on a Ray cluster, by Ray Core tasks.

Ray retries a task whose worker or node was lost. No more tasks are submitted than there are processors, so that a
task's deadline begins with its start.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from evaluation.jobs.engine.errors import MAX_LOSSES, late, lost
from logs_schema.mapping import Item, Result
from logs_schema.progress import Progress

POLL_S = 1.0


class RayTasks:
    """A `TaskMap` over the tasks of a Ray cluster.

    Args:
        ray: The module, connected (`ray_cluster.connected`).
        deadline_s: Most seconds that a task may take.
        progress: Progress display.
    """

    def __init__(self, ray: ModuleType, deadline_s: float, progress: Progress) -> None:
        self.ray, self.deadline_s, self.progress = ray, deadline_s, progress

    def __call__(
        self, task: Callable[[Item], Result], items: Sequence[Item], name: str = ""
    ) -> Iterator[Result]:
        """The results in the order of the items."""
        remote = self.ray.remote(task).options(num_cpus=1, max_retries=MAX_LOSSES, retry_exceptions=False)
        results: dict[int, Result] = {}
        waiting, running = deque(range(len(items))), dict[Any, tuple[int, float]]()
        with self.progress.stage(name, total=len(items), unit="tasks") as stage:
            while waiting or running:
                while waiting and len(running) < max(1, int(self.ray.cluster_resources().get("CPU", 1))):
                    index = waiting.popleft()
                    running[remote.remote(items[index])] = index, time.monotonic() + self.deadline_s
                done, _ = self.ray.wait(list(running), num_returns=1, timeout=POLL_S)
                for one in done:
                    index, _ = running.pop(one)
                    results[index] = self._result(one, name, items[index])
                index, until_s = min(running.values(), key=lambda one: one[1], default=(0, math.inf))
                if time.monotonic() > until_s:
                    for one in running:
                        self.ray.cancel(one, force=True)
                    raise late(name, items[index], self.deadline_s)
                stage(len(results), text=self._nodes_in_words())
        return iter([results[index] for index in range(len(items))])

    def _result(self, reference: Any, name: str, item: object) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except (self.ray.exceptions.RayError, self.ray.exceptions.RaySystemError) as error:
            raise lost(name, [item]) from error

    def _nodes_in_words(self) -> str:
        alive = sum(bool(node["Alive"]) for node in self.ray.nodes())
        return f"on {alive} {'node' if alive == 1 else 'nodes'}"

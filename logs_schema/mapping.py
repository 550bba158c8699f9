"""One task on many items, wherever it runs: the interface by which lower floors use several processors."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskMap(Protocol):
    """Runs a task on every item and gives the results in the order of the items.

    Tasks are functions of a module, items and results small: large things lie in files. A task may run twice, when its
    first run was lost, so it writes what it writes under names of its own and renames it into place.
    """

    def __call__(
        self, task: Callable[[Item], Result], items: Sequence[Item], name: str = ""
    ) -> Iterator[Result]:
        """The results; `name` describes what the tasks do, for progress and errors."""


def one_by_one(task: Callable[[Item], Result], items: Sequence[Item], name: str = "") -> Iterator[Result]:
    """Runs every task here."""
    return map(task, items)

"""Errors of the engine: lost and late tasks."""

from logs_schema.errors import SchedtwinError, first

MAX_LOSSES = 3
"""Times that a worker may die before its task is done."""


class EngineError(SchedtwinError):
    """A task was lost too often, or did not end in time.

    Attributes:
        items: The items of such tasks: one of them was lost, or the one was late.
    """

    items: tuple[object, ...] = ()


def lost(name: str, items: list[object]) -> EngineError:
    """The error for tasks whose workers died repeatedly."""
    error = EngineError(
        f"{name}: a worker died {MAX_LOSSES} times before its task was done",
        where=f"one of these tasks: {first(items)}",
        allowed="workers that run until their task is done",
        advice="find out why they are killed (memory?); finished tasks are saved: run the same command again",
    )
    error.items = tuple(items)
    return error


def late(name: str, item: object, deadline_s: float) -> EngineError:
    """The error for a task that did not end in time."""
    error = EngineError(
        f"{name}: a task did not end within {deadline_s:g} s",
        where=str(item),
        allowed=f"{deadline_s:g} s a task",
        advice="give tasks more time with --deadline; finished tasks are saved: run the same command again",
    )
    error.items = (item,)
    return error

"""What can go wrong with tasks that is no fault of theirs."""

from logs_schema.errors import SchedtwinError, first


class EngineError(SchedtwinError):
    """A task was lost too often, or did not end in time."""


def lost(name: str, items: list[object], num_losses: int) -> EngineError:
    """Workers died under these tasks, again and again."""
    return EngineError(
        f"{name}: a worker died {num_losses} times before its task was done",
        where=f"one of these tasks: {first(items)}",
        allowed="workers that live until their task is done",
        advice="look for what kills them (memory?); what is done is kept: run the same command again",
    )


def late(name: str, item: object, deadline_s: float) -> EngineError:
    """A task did not end in time."""
    return EngineError(
        f"{name}: a task did not end within {deadline_s:g} s", where=str(item), allowed=f"{deadline_s:g} s a task",
        advice="give tasks more time with --deadline; what is done is kept: run the same command again",
    )  # fmt: skip

"""What a simulation needs in memory, refused before it begins where the machine has less."""

import os

from evaluation.simulator.world import World
from logs_schema.errors import ConfigError

BYTES_A_REQUEST = 400
"""Of a request of the days that are simulated together: its row about 100 to 160 bytes, and copies of it."""


def refuse_too_large(world: World, days_at_once: int, memory_bytes: int | None = None) -> None:
    """ConfigError where days of the world's own requests cannot fit into memory.

    Args:
        world: The simulated cluster.
        days_at_once: Days that are simulated together.
        memory_bytes: Of the machine, which is asked where None.
    """
    memory = _memory_bytes() if memory_bytes is None else memory_bytes
    a_day = world.requests_per_day * max(1.0, world.weekend_factor)
    needed = a_day * days_at_once * BYTES_A_REQUEST
    if memory and needed > memory:
        most = world.requests_per_day * memory / needed
        raise ConfigError(
            f"{a_day:,.0f} requests a day, {days_at_once} days at a time, would take about {needed / 2**30:,.0f} GiB "
            f"of memory, and this machine has {memory / 2**30:,.0f}",
            where=f"simulated world {world.name!r}, requests_per_day", allowed=f"about {most:,.0f} or fewer",
            advice="lower requests_per_day",
        )  # fmt: skip


def _memory_bytes() -> int:
    """The machine's memory; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0

"""What a simulation needs in memory, refused before it begins where the machine has less."""

import os

from evaluation.simulator.world import World
from logs_schema.errors import ConfigError

BYTES_A_REQUEST = 400
"""Of a request of the days that are simulated together: its row about 100 to 160 bytes, and copies of it."""
BYTES_AN_AGENT = 100
"""Of an agent on each of these days: its site, scenario, tastes and state, a few numbers each."""


def refuse_too_large(
    world: World, days_at_once: int, memory_bytes: int | None = None, *, has_own_requests: bool = True
) -> None:
    """ConfigError where days of a world cannot fit into memory.

    Args:
        world: The simulated cluster.
        days_at_once: Days that are simulated together.
        memory_bytes: Of the machine, which is asked where None.
        has_own_requests: Whether the world draws its requests, rather than taking those of a log.
    """
    memory = _memory_bytes() if memory_bytes is None else memory_bytes
    numbers = {"num_agents": (float(world.num_agents), BYTES_AN_AGENT)}
    if has_own_requests:
        a_day = world.requests_per_day * max(1.0, world.weekend_factor)
        numbers["requests_per_day"] = a_day, BYTES_A_REQUEST
    for name, (number, each) in numbers.items():
        needed = number * each * days_at_once
        if memory and needed > memory:
            raise ConfigError(
                f"{name} of {number:,.0f}, {days_at_once} days at a time, would take about {needed / 2**30:,.0f} GiB "
                f"of memory, and this machine has {memory / 2**30:,.0f}",
                where=f"simulated world {world.name!r}, {name}",
                allowed=f"about {number * memory / needed:,.0f} or fewer",
                advice=f"lower {name}",
            )


def _memory_bytes() -> int:
    """The machine's memory; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0

"""What the ordering problem leaves open: sizes of its tables, the order of backfilling, the cost of waiting, units."""

from collections.abc import Callable
from dataclasses import dataclass

from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.ordering.states import JobRequests

Order = Callable[[JobRequests, Array], Array]
"""(queue, clock [*streams]) -> scores [queue_size, *streams]: lowest first, ties in order of arrival."""
COSTS = ("bounded_slowdown", "log_bounded_slowdown", "wait")
"""What waiting may cost; see `OrderingConfig.cost`."""


@dataclass(frozen=True)
class OrderingConfig:
    """What the ordering problem leaves open.

    Attributes:
        num_visible: `K`, how many waiting jobs a policy observes and chooses among.
        queue_size: Places in the queue, at least `num_visible`; a job that finds none waits outside and is counted.
        running_size: Rows in the table of what runs; a full table blocks the machine, which is counted.
        num_agents: Users whose history is kept apart.
        backfill: Order in which jobs behind a blocked head are tried; of arrival by default.
        cost: "bounded_slowdown": max(1, (wait + run) / max(run, floor)); "log_bounded_slowdown", its logarithm; "wait",
            in time units.
        slowdown_floor_s: Run times below this count as this long in the bounded slowdown.
        tick_s: Length of a tick. Times of a log are rounded to whole ticks; see `job_windows.fitting_tick_s`.
        time_unit_s: Unit of durations in features.
    """

    num_visible: int = 128
    queue_size: int = 256
    running_size: int = 128
    num_agents: int = 256
    backfill: Order | None = None
    cost: str = "bounded_slowdown"
    slowdown_floor_s: float = 10.0
    tick_s: float = 1.0
    time_unit_s: float = 600.0

    def __post_init__(self) -> None:
        sizes = (self.num_visible, self.queue_size, self.running_size, self.num_agents)
        if min(sizes) < 1 or self.queue_size < self.num_visible:
            raise ConfigError(
                f"the sizes {sizes} do not go together",
                where="OrderingConfig: num_visible, queue_size, running_size, num_agents",
                allowed="1 or more each, and queue_size at least num_visible",
            )
        if self.cost not in COSTS:
            raise ConfigError(
                f"unknown cost {self.cost!r}", where="OrderingConfig.cost", allowed=", ".join(COSTS)
            )
        if not min(self.tick_s, self.time_unit_s, self.slowdown_floor_s) > 0.0:
            raise ConfigError(
                "a time is not positive",
                where="OrderingConfig: tick_s, time_unit_s, slowdown_floor_s",
                allowed="more than 0 s",
            )

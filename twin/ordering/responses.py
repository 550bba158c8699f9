"""The response of the ordering problem: arrivals and true ends, kept private, race against the pool's clock."""

from typing import NamedTuple

from twin.contracts import Array, EnvironmentState, PyTree, Response
from twin.ordering.arrivals import Arrivals
from twin.ordering.problem import OrderingConfig
from twin.ordering.types import Pool


class Hidden(NamedTuple):
    """What the scheduler cannot know yet, beside the public tables."""

    run: Array  # [queue_size, *streams] int32 ticks: true run times of waiting jobs
    number: Array  # [queue_size, *streams] int32: their numbers
    end: Array  # [running_size, *streams] int32 ticks: true ends, NEVER in empty rows
    start: Array  # [num_jobs, *streams] int32 ticks: starts by number, NEVER before
    arrivals: PyTree


def queue_response(pool: Pool, config: OrderingConfig, arrivals: Arrivals) -> Response:
    """Ends and arrivals in the order in which `twin.ordering.replay` goes through an instant."""
    raise NotImplementedError


def starts_of(state: EnvironmentState, config: OrderingConfig) -> Array:
    """[num_jobs, *streams] float32 seconds after the beginning at which jobs started; NaN for those that have not."""
    raise NotImplementedError

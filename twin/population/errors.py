"""What can go wrong while a population is learned."""

from logs_schema.errors import SchedtwinError


class PopulationError(SchedtwinError):
    """A population cannot be learned from these rows, or its training went astray."""

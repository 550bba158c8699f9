"""What can go wrong while answers are imitated."""

from logs_schema.errors import SchedtwinError


class ImitationError(SchedtwinError):
    """Answers cannot be imitated from these windows, or the adversarial game went astray."""

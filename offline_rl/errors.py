"""What can go wrong while learning."""

from logs_schema.errors import SchedtwinError


class TrainingError(SchedtwinError):
    """Training cannot start or go on: unfit experience, a checkpoint of another run, or numbers that left all
    bounds."""


class PolicyInputError(SchedtwinError):
    """An exported policy was given features or a mask that it cannot decide on."""

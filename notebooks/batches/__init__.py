"""A worked example: the problem of which edge takes a whole batch, from a log to a bundle."""

from .kit import BATCHES_KIT
from .log import write_log

__all__ = ["BATCHES_KIT", "write_log"]

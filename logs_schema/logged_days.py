"""Some days of an archive: what a twin is fitted on, and what policies are judged on."""

from datetime import date
from typing import NamedTuple

from logs_schema.archive import Archive


class LoggedDays(NamedTuple):
    """Days of one archive.

    Attributes:
        archive: Where they are.
        days: Ascending; every one has requests.
    """

    archive: Archive
    days: tuple[date, ...]

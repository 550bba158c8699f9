"""The encoding of a job's training days, fitted once for what runs side by side: the twin's fit, and the clone of the
log that is begun beside it."""

import datetime as dt
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

from evaluation.comparison.training_days import DaysConfig
from logs_schema import Archive
from twin.placement.encoding import Encoding, fit_encoding

_FITTING = Lock()


def encoding_of(archive: Archive, train_days: Sequence[dt.date], days: DaysConfig) -> Encoding:
    """The encoding of some days of an archive, as `fit_encoding` fits it and with its errors; the last one is kept."""
    with _FITTING:
        return _fitted(archive.path, archive.content_hash, tuple(train_days), days.granularity, days.view)


@lru_cache(maxsize=1)
def _fitted(
    archive: Path, content_hash: str, train_days: tuple[dt.date, ...], granularity: str, view: str
) -> Encoding:
    return fit_encoding(Archive(archive), train_days, granularity=granularity, view=view)

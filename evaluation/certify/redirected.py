"""Test of the decisions: whether requests ran where they were placed.

A twin has a request run on the node that it was offered to. Where nodes pass requests on, or a scheduler decides anew,
what the log shows of a node is not what comes of choosing it.

    share = mean of (ran elsewhere than offered to),    of the requests of which the log says both
"""

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_limit, not_applicable
from evaluation.certify.resampled import mean_of
from logs_schema import Archive
from logs_schema.redirections import COLUMNS, class_of_node, redirected

SECTION = "where requests run"
NAME = "requests that ran elsewhere than they were offered to"
UNIT_US = 3_600_000_000
"""Requests of an hour are resampled together."""


def redirected_line(archive: Archive, days: Sequence[dt.date], config: CertifyConfig) -> Line:
    """The line; it is deciding."""
    class_of, hours, moved = class_of_node(archive), [], []
    for batch in archive.scan("requests", days=days, columns=["arrival", *COLUMNS]):
        elsewhere = redirected(batch, class_of)
        known = pc.is_valid(elsewhere)
        hours.append(np.asarray(pc.cast(pc.filter(batch["arrival"], known), pa.int64())) // UNIT_US)
        moved.append(np.asarray(pc.filter(elsewhere, known), float))
    if not sum(map(len, moved)):
        return not_applicable(
            SECTION, NAME, "the log does not say both where requests were offered to and where they ran"
        )
    values, (hour, unit) = np.concatenate(moved), np.unique(np.concatenate(hours), return_inverse=True)
    measured = mean_of(values, unit, len(hour))
    return against_limit(
        SECTION, NAME, "share", measured, len(hour), config.thresholds.redirected, config.intervals(),
        deciding=True, reason=f"{values.sum():,.0f} of {len(values):,} requests",
    )  # fmt: skip

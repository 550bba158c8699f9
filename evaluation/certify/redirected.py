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
    """The line; it is deciding. One pass over the days; two numbers an hour are kept."""
    class_of, num_of_hour, num_elsewhere = class_of_node(archive), dict[int, int](), dict[int, int]()
    for batch in archive.scan("requests", days=days, columns=["arrival", *COLUMNS]):
        elsewhere = redirected(batch, class_of)
        known = pc.is_valid(elsewhere)
        hour = np.asarray(pc.cast(pc.filter(batch["arrival"], known), pa.int64())) // UNIT_US
        is_elsewhere = np.asarray(pc.filter(elsewhere, known), bool)
        for one in np.unique(hour).tolist():
            here = hour == one
            num_of_hour[one] = num_of_hour.get(one, 0) + int(here.sum())
            num_elsewhere[one] = num_elsewhere.get(one, 0) + int(is_elsewhere[here].sum())
    if not num_of_hour:
        return not_applicable(
            SECTION, NAME, "the log does not say both where requests were offered to and where they ran"
        )
    total, moved = sum(num_of_hour.values()), sum(num_elsewhere.values())
    unit = np.repeat(np.arange(len(num_of_hour)), list(num_of_hour.values()))
    moved_of_hour = [np.arange(num) < num_elsewhere[hour] for hour, num in num_of_hour.items()]
    values = np.concatenate(moved_of_hour).astype(float)
    measured = mean_of(values, unit, len(num_of_hour))
    return against_limit(
        SECTION, NAME, "share", measured, len(num_of_hour), config.thresholds.redirected, config.intervals(),
        deciding=True, reason=f"{moved:,} of {total:,} requests",
    )  # fmt: skip

"""What is odd about samples of deployments: use far beyond grants, other units of time, answers without replicas."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.archive import Archive
from logs_schema.errors import counted, first
from logs_schema.tables import DEPLOYMENT_SAMPLES

FAR_BEYOND = 1.5
"""Use so many times the grant is named: in short bursts it may be a little above."""
USES = {"cpu_cores_used": "cpu_cores", "memory_gib_used": "memory_gib"}
"""What a replica uses, and what it is granted."""
SLOW_S, RESPONSES = 10.0, ("response_s", "response_p95_s", "response_p99_s")
"""Columns in which most values are below so many seconds, unless they are milliseconds."""
ANSWERING = ("deployment", "num_replicas", "request_rate_per_s", "response_s")
COLUMNS = tuple(dict.fromkeys(("deployment", *USES, *USES.values(), *RESPONSES, *ANSWERING)))


def deployment_warnings(archive: Archive) -> list[str]:
    """The oddities in words; `deployment_samples` is read once."""
    grants = [_Beyond(used, granted) for used, granted in USES.items()]
    responses, replicas = [Above(name, SLOW_S) for name in RESPONSES], _WithoutReplicas()
    seen: list[_Beyond | Above | _WithoutReplicas] = [*grants, *responses, replicas]
    for batch in archive.scan(DEPLOYMENT_SAMPLES.name, columns=COLUMNS):
        for one in seen:
            one.add(batch)
    slow = (
        f"{one.column} is above {SLOW_S:g} s in {one.num_above:,} of {one.num_known:,} rows, at most "
        f"{one.largest:,.4g}: is it in seconds?"
        for one in responses
        if one.num_above > 0.5 * one.num_known
    )
    return [*(warning for one in grants for warning in one.warnings()), *slow, *replicas.warnings()]


@dataclass
class Above:
    """How many values of a column are above a limit, batch by batch."""

    column: str
    limit: float
    num_above: int = 0
    num_known: int = 0
    largest: float = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the values of a batch."""
        values = batch[self.column].drop_null().to_numpy(zero_copy_only=False)
        self.num_known += len(values)
        self.num_above += int((values > self.limit).sum())
        self.largest = max(self.largest, float(values.max(initial=0.0)))


@dataclass
class _Beyond:
    """Deployments that use far more than they are granted: bursts beyond a request, or another unit."""

    used: str
    granted: str
    num_beyond: int = 0
    num_known: int = 0
    worst: str = ""
    largest: float = FAR_BEYOND

    def add(self, batch: pa.RecordBatch) -> None:
        granted = pc.if_else(pc.greater(batch[self.granted], 0.0), batch[self.granted], None)
        shares = pc.divide(batch[self.used], granted).to_numpy(zero_copy_only=False)
        self.num_known += int(np.isfinite(shares).sum())
        self.num_beyond += int((shares > FAR_BEYOND).sum())
        most = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
        if most > self.largest:
            self.worst, self.largest = str(batch["deployment"][int(np.nanargmax(shares))]), most

    def warnings(self) -> Iterator[str]:
        if self.num_beyond:
            yield (
                f"{self.used} is more than {FAR_BEYOND:g} times {self.granted} in {self.num_beyond:,} of "
                f"{self.num_known:,} rows, at most {self.largest:,.4g} times ({self.worst}): are both of one replica, "
                "in the unit of their column?"
            )


@dataclass
class _WithoutReplicas:
    """Deployments that answer without replicas: the metric is of another object, or of another moment."""

    num_rows: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch) -> None:
        answers = pc.and_(pc.greater(batch["request_rate_per_s"], 0.0), pc.is_finite(batch["response_s"]))
        rows = batch.filter(pc.and_(pc.equal(batch["num_replicas"], 0), answers))
        self.num_rows += len(rows)
        self.names |= set(rows["deployment"].cast(pa.string()).to_pylist())

    def warnings(self) -> Iterator[str]:
        if self.num_rows:
            yield (
                f"num_replicas is 0 in {counted(self.num_rows, 'row')} in which requests were answered "
                f"({first(sorted(self.names))}): are the replicas those of the same deployment and interval?"
            )

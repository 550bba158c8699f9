"""What is odd about samples of deployments: use far beyond grants or far below, other units of time, answers without
replicas; and which metrics are not there."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import deployment_clocks, deployment_gaps
from logs_schema.archive import Archive
from logs_schema.deployment_clocks import Clocks
from logs_schema.deployment_gaps import PartlyKnown, Presence
from logs_schema.errors import counted, first
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

FAR_BEYOND = 1.5
"""Use so many times the grant is named: in short bursts it may be a little above."""
FAR_BELOW = 0.01
"""Use that is never more than this share of the grant is named: nobody grants a hundred times what is used."""
USES = {"cpu_cores_used": "cpu_cores", "memory_gib_used": "memory_gib"}
"""What a replica uses, and what it is granted."""
SLOW_S, RESPONSES = 10.0, ("response_s", "response_p95_s", "response_p99_s")
"""Columns in which most values are below so many seconds, unless they are milliseconds."""
GRANTS = {"cpu_cores": (0.001, 1024.0, "cores"), "memory_gib": (0.001, 24_576.0, "GiB")}
"""Grants of a replica between which most are, and their units."""
ANSWERING = ("deployment", "num_replicas", "request_rate_per_s", "response_s")
COLUMNS = tuple(
    dict.fromkeys(
        (*deployment_gaps.COLUMNS, *deployment_clocks.COLUMNS, *USES, *USES.values(), *RESPONSES, *ANSWERING)
    )
)
NEEDED_OF_DEPLOYMENTS = ("cpu_cores", "num_replicas", "cpu_cores_used", "request_rate_per_s", "response_s")
NEEDED_OF_GATEWAY = ("request_rate_per_s", "response_s")
"""Without these nothing can be trained in a twin. The 95 % quantile of a response time stands in for its mean."""


def deployment_warnings(archive: Archive) -> list[str]:
    """The oddities in words; `deployment_samples` is read once."""
    grants = [_Beyond(used, granted) for used, granted in USES.items()]
    responses, replicas, told = [Above(name, SLOW_S) for name in RESPONSES], _WithoutReplicas(), _Told()
    sizes = [(Above(name, low), Above(name, high)) for name, (low, high, _) in GRANTS.items()]
    presence, partly, clocks = Presence(), PartlyKnown(NEEDED_OF_DEPLOYMENTS), Clocks()
    seen: list[_Beyond | Above | _WithoutReplicas | _Told | Presence | PartlyKnown | Clocks] = [
        *grants, *responses, *(one for pair in sizes for one in pair), replicas, told, presence, partly, clocks,
    ]  # fmt: skip
    for batch in archive.scan(DEPLOYMENT_SAMPLES.name, columns=COLUMNS):
        for one in seen:
            one.add(batch)
    slow = (
        f"{one.column} is above {SLOW_S:g} s in {one.num_above:,} of {one.num_known:,} rows, at most "
        f"{one.largest:,.4g}: is it in seconds?"
        for one in responses
        if one.num_above > 0.5 * one.num_known
    )
    return [
        *(warning for one in grants for warning in one.warnings()),
        *slow,
        *(warning for low, high in sizes for warning in _odd_sizes(low, high)),
        *replicas.warnings(),
        *told.warnings(),
        *presence.warnings(),
        *partly.warnings(),
        *clocks.warnings(),
    ]


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


def _odd_sizes(low: Above, high: Above) -> Iterator[str]:
    """That most grants are smaller or larger than any replica is, in words."""
    least, most, unit = GRANTS[low.column]
    if high.num_above > 0.5 * high.num_known or low.num_above < 0.5 * low.num_known:
        yield (
            f"{low.column} is hardly ever between {least:g} and {most:,.0f} {unit} a replica (the largest is "
            f"{low.largest:,.4g}): is it in {unit}?"
        )


@dataclass
class _Beyond:
    """Deployments that use far more than they are granted, or all of them far less: bursts beyond a request, or another
    unit."""

    used: str
    granted: str
    num_beyond: int = 0
    num_known: int = 0
    worst: str = ""
    largest: float = FAR_BEYOND
    most: float = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        granted = pc.if_else(pc.greater(batch[self.granted], 0.0), batch[self.granted], None)
        shares = pc.divide(batch[self.used], granted).to_numpy(zero_copy_only=False)
        self.num_known += int(np.isfinite(shares).sum())
        self.num_beyond += int((shares > FAR_BEYOND).sum())
        most = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
        self.most = max(self.most, most)
        if most > self.largest:
            self.worst, self.largest = str(batch["deployment"][int(np.nanargmax(shares))]), most

    def warnings(self) -> Iterator[str]:
        if self.num_beyond:
            yield (
                f"{self.used} is more than {FAR_BEYOND:g} times {self.granted} in {self.num_beyond:,} of "
                f"{self.num_known:,} rows, at most {self.largest:,.4g} times ({self.worst}): are both of one replica, "
                "in the unit of their column?"
            )
        elif self.num_known and 0.0 < self.most < FAR_BELOW:
            yield (
                f"{self.used} is at most {self.most:.2%} of {self.granted}, in {self.num_known:,} rows of all "
                "deployments: are both in the unit of their column?"
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


@dataclass
class _Told:
    """Which columns have a number, by deployment."""

    columns: dict[str, set[str]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        names = batch["deployment"].cast(pa.string())
        for name in pc.unique(names).to_pylist():
            self.columns.setdefault(name, set())
        for column in (*NEEDED_OF_DEPLOYMENTS, "response_p95_s"):
            for name in pc.unique(names.filter(pc.is_valid(batch[column]))).to_pylist():
                self.columns[name].add(column)

    def warnings(self) -> Iterator[str]:
        deployments = sorted(set(self.columns) - {GATEWAY})
        if not deployments:
            return
        if GATEWAY not in self.columns:
            yield (
                f"no rows of '{GATEWAY}' tell what users saw: no twin can be fitted; import rate and response time of "
                "the ingress or front end under that name"
            )
            return
        missing = [
            *self._missing(deployments, NEEDED_OF_DEPLOYMENTS),
            *self._missing([GATEWAY], NEEDED_OF_GATEWAY),
        ]
        if missing:
            yield (
                f"not logged: {'; '.join(missing)}. A twin of this log forecasts what users see from load and grants, "
                "but nothing can be trained in it"
            )
        ungranted = [name for name in deployments if not self.columns[name] & set(NEEDED_OF_DEPLOYMENTS[:2])]
        if len(ungranted) < len(deployments):
            yield from (
                f"{name} is granted nothing, so it may be where users meet the application and no deployment: then its "
                f'series are the gateway\'s alone (gateway = "{name}" in the mapping)'
                for name in ungranted
            )

    def _missing(self, names: list[str], needed: tuple[str, ...]) -> Iterator[str]:
        are_means = any("response_s" in self.columns[name] for name in names)
        for column in needed:
            stands = "response_p95_s" if column == "response_s" and not are_means else column
            if lacking := [name for name in names if stands not in self.columns[name]]:
                everyone = len(lacking) == len(names) > 1
                yield f"{column} of {'any deployment' if everyone else first(lacking)}"

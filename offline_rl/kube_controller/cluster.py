"""What a controller reads of a cluster and writes to it, and how that can fail.

A Deployment with the labels `schedtwin.io/service` and `schedtwin.io/node` holds the replicas of a service on a node;
its scale subresource is all that is ever written, besides the controllers' Lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from logs_schema.errors import SchedtwinError

SERVICE, NODE = "schedtwin.io/service", "schedtwin.io/node"
"""Labels of Deployments."""
PAUSED = "schedtwin.io/paused"
"""Annotation of the Lease: where it is "true" nothing is changed."""

Kind = Literal["denied", "conflict", "unreachable", "refused"]


class ClusterError(SchedtwinError):
    """The cluster did not answer as asked; `kind` says how."""

    kind: Kind = "refused"


class DeniedError(ClusterError):
    """The controller lacks a permission."""

    kind: Kind = "denied"


class ConflictError(ClusterError):
    """Somebody else changed the object first."""

    kind: Kind = "conflict"


class UnreachableError(ClusterError):
    """No answer in time, or none that can be read; whether a write was made is not known."""

    kind: Kind = "unreachable"


@dataclass(frozen=True)
class Hosted:
    """The replicas of a service on a node.

    Attributes:
        name: Of the Deployment.
        service, node: What it hosts, and where.
        desired: Replicas in its specification.
        ready: Replicas that can serve.
        version: Of the object, for writes that must not overlook a change.
    """

    name: str
    service: str
    node: str
    desired: int
    ready: int
    version: str


@dataclass(frozen=True)
class Leadership:
    """The controllers' Lease.

    Attributes:
        holder: Who leads.
        renewed: When that was said last, as it was written.
        duration_s: How long that holds.
        annotations: Of the object.
        version: Of the object; empty for one that is not there yet.
    """

    holder: str
    renewed: str
    duration_s: float
    annotations: Mapping[str, str]
    version: str


class LeaseStore(Protocol):
    """Where the controllers' Lease is; every method may raise what it cannot do."""

    def lease(self) -> Leadership | None:
        """The Lease; None where there is none."""

    def write_lease(self, lease: Leadership) -> None:
        """Makes the Lease, or replaces the one of `lease.version`; ConflictError where somebody was quicker."""


class ScalableCluster(LeaseStore, Protocol):
    """A cluster; every method may raise `ClusterError`."""

    def hosted(self) -> list[Hosted]:
        """All Deployments with both labels."""

    def nodes_up(self) -> Mapping[str, bool]:
        """Node -> whether it is ready and takes pods."""

    def scale(self, name: str, replicas: int, version: str | None, *, only_try: bool) -> None:
        """Asks for replicas of a Deployment; `version`: only if it is that one still; `only_try`: nothing is kept."""

    def desired(self, name: str) -> int:
        """What a Deployment's scale asks for now."""

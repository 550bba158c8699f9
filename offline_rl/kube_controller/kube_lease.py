"""A Lease through the small client of the Kubernetes API (`offline_rl.serving.kube_api`): one autoscaler leads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from offline_rl.kube_controller.cluster import ConflictError, Leadership
from offline_rl.serving.kube_api import KubeApi, KubeError


@dataclass(frozen=True)
class KubeLease:
    """Where a Lease is; see `cluster.LeaseStore`. What it cannot do is a KubeError.

    Attributes:
        kube: The API.
        namespace, name: Of the Lease.
    """

    kube: KubeApi
    namespace: str
    name: str

    def lease(self) -> Leadership | None:
        """See `cluster.LeaseStore`."""
        try:
            with self._allowed():
                found = self.kube.get(f"{self._folder}/{quote(self.name)}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        with self.kube.read_as("a lease"):
            spec, meta = found.get("spec") or {}, found["metadata"]
            return Leadership(
                spec.get("holderIdentity") or "",
                spec.get("renewTime") or "",
                float(spec.get("leaseDurationSeconds") or 0),
                meta.get("annotations") or {},
                meta["resourceVersion"],
            )

    def write_lease(self, lease: Leadership) -> None:
        """See `cluster.LeaseStore`."""
        meta: dict[str, Any] = {
            "name": self.name,
            "namespace": self.namespace,
            "annotations": dict(lease.annotations),
        }
        renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": max(1, round(lease.duration_s)),
            "renewTime": renewed,
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        try:
            with self._allowed():
                if lease.version:
                    meta["resourceVersion"] = lease.version
                    self.kube.write("PUT", f"{self._folder}/{quote(self.name)}", body)
                else:
                    self.kube.write("POST", self._folder, body)
        except KubeError as error:
            if error.status == 409:
                raise ConflictError("somebody else wrote the lease first", where=self.name) from error
            raise

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace)}/leases"

    @contextmanager
    def _allowed(self) -> Iterator[None]:
        """Says which rights are missing."""
        try:
            yield
        except KubeError as error:
            if error.status not in (401, 403):
                raise
            raise KubeError(
                f"the lease that keeps two autoscalers apart is denied: {error.what}",
                where=error.where,
                allowed="an account that may get, create and update leases (coordination.k8s.io/v1) before it writes",
                advice="grant it, or recommend only, without --canary and --apply",
            ) from error

"""A cluster through the official Python client of Kubernetes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from logs_schema.errors import ConfigError
from logs_schema.extras import how_to_install
from offline_rl.kube_controller.cluster import (
    NODE,
    SERVICE,
    ClusterError,
    ConflictError,
    DeniedError,
    Hosted,
    Leadership,
    UnreachableError,
)

_ODD = (ValueError, TypeError, AttributeError, KeyError)
"""What the client, or whoever reads its objects, raises where an answer is none of the API."""


@dataclass(frozen=True)
class Access:
    """How the API server is reached: a server with token and certificate, else a kubeconfig, else from within a pod.

    Attributes:
        server: Address of the API server; with --token-file and --ca-file.
        token_file: File with the token; read for every request.
        ca_file: Certificate of whoever signed the server's.
        kubeconfig: File in place of these three.
        namespace: Of the Deployments and of the Lease.
        lease: Name of the Lease.
        timeout_s: How long an answer may take.
    """

    server: str | None = field(default=None, metadata={"metavar": "URL"})
    token_file: Path | None = None
    ca_file: Path | None = field(default=None, metadata={"metavar": "PEM"})
    kubeconfig: Path | None = None
    namespace: str = "default"
    lease: str = "schedtwin-orchestrate"
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        parts = {"--token-file": self.token_file, "--ca-file": self.ca_file}
        of_server = [name for name, path in parts.items() if path is not None]
        gone = [f"{name} {path}" for name, path in parts.items() if path is not None and not path.is_file()]
        wrong = ""
        if self.server is None and of_server:
            wrong = f"{' and '.join(of_server)} without --server"
        elif self.server is not None and self.kubeconfig is not None:
            wrong = "both --server and --kubeconfig"
        elif self.server is not None and not self.server.startswith(("http://", "https://")):
            wrong = f"--server {self.server} is no address that begins with http:// or https://"
        elif gone:
            wrong = f"there is no such file: {', '.join(gone)}"
        elif not self.timeout_s > 0.0:
            wrong = f"--timeout {self.timeout_s:g}"
        if wrong:
            raise ConfigError(
                wrong,
                where="the API server",
                allowed="--server with --token-file and --ca-file, or --kubeconfig; a --timeout above 0 s",
            )


class KubernetesCluster:
    """The cluster behind an API server. Not thread-safe.

    Args:
        access: See `Access`.

    Raises:
        ConfigError: The client is not installed, or nothing says where the server is.
    """

    def __init__(self, access: Access) -> None:
        try:
            from kubernetes import client
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"orchestrating needs '{error.name}', which is not installed",
                advice=how_to_install("orchestrate"),
            ) from error
        self._client: Any = client
        self.access = access
        connection = self._client.ApiClient(_configuration(client, access))
        self._apps, self._core = self._client.AppsV1Api(connection), self._client.CoreV1Api(connection)
        self._leases = self._client.CoordinationV1Api(connection)

    def hosted(self) -> list[Hosted]:
        """See `cluster.ScalableCluster`."""
        with self._asking("list deployments"):
            found = self._apps.list_namespaced_deployment(
                self.access.namespace,
                label_selector=f"{SERVICE},{NODE}",
                _request_timeout=self.access.timeout_s,
            )
            return [
                Hosted(
                    one.metadata.name,
                    one.metadata.labels[SERVICE],
                    one.metadata.labels[NODE],
                    one.spec.replicas or 0,
                    (one.status.ready_replicas or 0) if one.status else 0,
                    one.metadata.resource_version,
                )
                for one in found.items
            ]

    def nodes_up(self) -> Mapping[str, bool]:
        """See `cluster.ScalableCluster`."""
        with self._asking("list nodes"):
            found = self._core.list_node(_request_timeout=self.access.timeout_s)
            return {one.metadata.name: _is_up(one) for one in found.items}

    def scale(self, name: str, replicas: int, version: str | None, *, only_try: bool) -> None:
        """See `cluster.ScalableCluster`."""
        meta = self._client.V1ObjectMeta(name=name, namespace=self.access.namespace, resource_version=version)
        body = self._client.V1Scale(metadata=meta, spec=self._client.V1ScaleSpec(replicas=replicas))
        tried = {"dry_run": "All"} if only_try else {}
        with self._asking(f"scale deployment {name}"):
            self._apps.replace_namespaced_deployment_scale(
                name, self.access.namespace, body, _request_timeout=self.access.timeout_s, **tried
            )

    def desired(self, name: str) -> int:
        """See `cluster.ScalableCluster`."""
        with self._asking(f"read the scale of deployment {name}"):
            found = self._apps.read_namespaced_deployment_scale(
                name, self.access.namespace, _request_timeout=self.access.timeout_s
            )
            return int(found.spec.replicas or 0)

    def lease(self) -> Leadership | None:
        """See `cluster.ScalableCluster`."""
        with self._asking(f"read lease {self.access.lease}"):
            try:
                found = self._leases.read_namespaced_lease(
                    self.access.lease, self.access.namespace, _request_timeout=self.access.timeout_s
                )
            except self._client.ApiException as error:
                if error.status == 404:
                    return None
                raise
            spec, meta = found.spec or self._client.V1LeaseSpec(), found.metadata
            return Leadership(
                spec.holder_identity or "",
                spec.renew_time.isoformat() if spec.renew_time else "",
                float(spec.lease_duration_seconds or 0),
                meta.annotations or {},
                meta.resource_version,
            )

    def write_lease(self, lease: Leadership) -> None:
        """See `cluster.ScalableCluster`."""
        meta = self._client.V1ObjectMeta(
            name=self.access.lease,
            namespace=self.access.namespace,
            annotations=dict(lease.annotations),
            resource_version=lease.version or None,
        )
        spec = self._client.V1LeaseSpec(
            holder_identity=lease.holder,
            lease_duration_seconds=max(1, round(lease.duration_s)),
            renew_time=datetime.now(UTC),
        )
        body, wait = (
            self._client.V1Lease(metadata=meta, spec=spec),
            {"_request_timeout": self.access.timeout_s},
        )
        with self._asking(f"write lease {self.access.lease}"):
            if lease.version:
                self._leases.replace_namespaced_lease(self.access.lease, self.access.namespace, body, **wait)
            else:
                self._leases.create_namespaced_lease(self.access.namespace, body, **wait)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turns the client's errors into ours."""
        from urllib3.exceptions import HTTPError

        where = f"{what}, namespace {self.access.namespace}"
        try:
            yield
        except self._client.ApiException as error:
            raise _error_of(error.status, str(error.reason or error.body or ""), where) from error
        except (HTTPError, OSError) as error:
            raise UnreachableError(
                f"the API server did not answer: {type(error).__name__}",
                where=where,
                allowed=f"an answer within {self.access.timeout_s:g} s",
                advice="it is asked again in the next frame",
            ) from error
        except _ODD as error:
            raise UnreachableError(
                f"the API server's answer is not as the API describes it: {type(error).__name__}",
                where=f"{where}: {error}"[:500],
                allowed="the objects of Kubernetes",
                advice="look whether --server is its address, and what stands between",
            ) from error


def _error_of(status: int, reason: str, where: str) -> ClusterError:
    if status in (401, 403):
        return DeniedError(
            f"the API server does not permit this: {status} {reason}",
            where=where,
            allowed="get and list deployments and nodes, update deployments/scale, get, create and update leases",
            advice="give the controller's account a role with these rights",
        )
    if status == 409:
        return ConflictError(
            f"somebody else changed it first: {reason}",
            where=where,
            advice="it is decided again in the next frame",
        )
    kind: Callable[..., ClusterError] = UnreachableError if status >= 500 or status == 429 else ClusterError
    return kind(f"the API server refuses: {status} {reason}", where=where)


def _configuration(client: Any, access: Access) -> Any:
    configuration = client.Configuration()
    if access.server is not None:
        configuration.host = access.server
        if access.token_file is not None:
            configuration.api_key_prefix = {"authorization": "Bearer"}
            configuration.refresh_api_key_hook = partial(_read_token, access.token_file)
            _read_token(access.token_file, configuration)
        configuration.ssl_ca_cert = None if access.ca_file is None else str(access.ca_file)
    else:
        from kubernetes import config
        from yaml import YAMLError  # type: ignore[import-untyped]

        try:
            if access.kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)
            else:
                config.load_kube_config(str(access.kubeconfig), client_configuration=configuration)
        except (config.ConfigException, YAMLError, TypeError, KeyError, AttributeError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConfigError(
                f"nothing says where the API server is: {said}",
                where=str(access.kubeconfig or "no kubeconfig"),
                allowed="--server with --token-file and --ca-file, --kubeconfig, or an account within a pod",
            ) from error
    configuration.retries = False
    return configuration


def _read_token(path: Path, configuration: Any) -> None:
    """Reads the token, as the client does before every request: tokens of pods and of clouds are soon replaced."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise _no_token(path, type(error).__name__) from error
    if not token:
        raise _no_token(path, "it is empty")
    configuration.api_key = {"authorization": token}


def _no_token(path: Path, why: str) -> DeniedError:
    return DeniedError(
        "there is no token", where=f"{path}: {why}", advice="it is read again in the next frame"
    )


def _is_up(node: Any) -> bool:
    conditions = (node.status.conditions or []) if node.status else []
    ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    return ready and not (node.spec and node.spec.unschedulable)

"""A small client of the Kubernetes API: JSON over plain HTTP or TLS, with a bearer token. Needs the standard library.

Without a base URL it is that of the cluster it runs in, with the service account's token and certificate. `kubectl
proxy` answers on loopback without either. Deployments are read as objects; replicas are written through the scale
subresource, so that the right to scale is enough.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request

from logs_schema.errors import ConfigError, SchedtwinError
from offline_rl.serving.direct_http import content_of, direct_opener

IN_CLUSTER = "https://kubernetes.default.svc"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
MAX_BYTES = 64 * 1024**2
AGAIN = "a running autoscaler asks again in the next interval"
ADVICE = {
    401: "give a token that is valid, or the address of `kubectl proxy`",
    403: "grant the rights to the account",
    404: "look at the namespace and the name",
    409: f"nothing: somebody else wrote first, and {AGAIN}",
    422: "see what the API says is wrong: a quota, a limit or an admission rule",
    429: f"{AGAIN}; where it is refused again and again, look at the load of the API",
}
"""Status of a refusal -> what to do."""


class KubeError(SchedtwinError):
    """The Kubernetes API has not answered as it should; `status` is that of its answer, 0 where there was none."""

    status: int = 0


@dataclass(frozen=True)
class KubeApi:
    """Where the API is.

    Attributes:
        url: Base URL, http or https.
        token_file: File with the bearer token, read anew for every call (tokens are renewed).
        ca_file: PEM of the authority that signed the API's certificate; the system's if None.
        timeout_s: For one call.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")) or self.timeout_s <= 0.0:
            raise ConfigError(
                f"{self.url!r} with {self.timeout_s:g} s is no API to call",
                where="--kube",
                allowed="http://... or https://..., a time above 0 s",
            )

    @staticmethod
    def in_cluster() -> "KubeApi":
        """The API of the cluster that this process runs in; ConfigError where it runs in none."""
        if not (ACCOUNT / "token").is_file():
            raise ConfigError(
                "this process runs in no cluster",
                where=str(ACCOUNT),
                allowed="a pod with a service account",
                advice="give the address of the API, or that of `kubectl proxy` (http://127.0.0.1:8001)",
            )
        return KubeApi(IN_CLUSTER, ACCOUNT / "token", ACCOUNT / "ca.crt")

    def get(self, path: str) -> dict[str, Any]:
        """An object, or a list; KubeError."""
        return self._call("GET", path)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE_PATCH) -> dict[str, Any]:
        """Changes an object, or a subresource of it; KubeError."""
        return self._call("PATCH", path, body, kind)

    def write(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes an object (POST), or replaces it (PUT); KubeError."""
        return self._call(method, path, body)

    def deployments(self, namespace: str) -> dict[str, dict[str, Any]]:
        """Name -> `apps/v1` Deployment."""
        found = self.get(f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments").get("items")
        if not isinstance(found, list):
            raise KubeError(
                "the list of deployments has no items", where=f"{self.url}, namespace {namespace}"
            )
        with self.read_as("a deployment"):
            return {one["metadata"]["name"]: one for one in found}

    @contextmanager
    def read_as(self, what: str) -> Iterator[None]:
        """KubeError where what the API answered lacks parts that its objects have."""
        try:
            yield
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise KubeError(
                f"{what} is not as the API describes it ({type(error).__name__}: {error})", where=self.url
            ) from error

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        """Sets the replicas of a deployment through its scale subresource."""
        path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(deployment)}/scale"
        self.patch(path, {"spec": {"replicas": replicas}})

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": kind})
        data = None if body is None else json.dumps(body).encode()
        handlers = []
        if self.url.startswith("https://"):
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=self.ca_file)))
        try:
            if self.token_file is not None:
                headers["Authorization"] = f"Bearer {self.token_file.read_text().strip()}"
            request = Request(self.url.rstrip("/") + path, data, headers, method=method)
            with direct_opener(*handlers).open(request, timeout=self.timeout_s) as answer:
                found = json.loads(content_of(answer, MAX_BYTES, self.timeout_s))
        except HTTPError as error:
            if error.code < 400:
                raise KubeError(
                    f"the API answers elsewhere ({error})",
                    where=f"{self.url}{path}",
                    advice="give the address of the API itself",
                ) from error
            content = _content_of(error)
            refused = KubeError(
                f"the API refused {method} ({error.code})",
                where=f"{self.url}{path}: {content}",
                allowed="an account with the rights of offline_rl/serving/deployment/autoscaling.yaml"
                if error.code in (401, 403)
                else "",
                advice=ADVICE.get(error.code, f"see what the API says; {AGAIN}"),
            )
            refused.status = error.code
            raise refused from error
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise KubeError(
                f"the API cannot be reached ({error})",
                where=f"{self.url}{path}",
                advice=f"look whether --kube is its address, and whether it is at work; {AGAIN}",
            ) from error
        if not isinstance(found, dict):
            raise KubeError("the answer is no object", where=f"{self.url}{path}")
        return found


def _content_of(error: HTTPError) -> str:
    """What the body of an error says; empty where it breaks off."""
    try:
        with error:
            return error.read(2000).decode(errors="replace")
    except (OSError, HTTPException):
        return ""

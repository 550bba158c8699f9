"""The replicas that an autoscaler wants, as a metric by which Kubernetes' own HorizontalPodAutoscaler scales.

    /metrics                                                             Prometheus' text, to be scraped
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/schedtwin_replicas?labelSelector=deployment%3Dcart

The second is the external metrics API, which an APIService leads to (TLS needed: --external-cert). An autoscaler with
this metric and a target of 1 on average asks for that many replicas. What is not decided has no value, and no value is
older than two intervals: then the pod autoscaler changes nothing, or follows its other metrics.
"""

import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from logs_schema.errors import ConfigError
from offline_rl.serving.scaling_guard import HOLD

METRIC, LABEL = "schedtwin_replicas", "deployment"
GROUP = "external.metrics.k8s.io/v1beta1"
LASTS_INTERVALS = 2.0
SILENT_S = 10.0
"""A caller that says nothing for so long, or has not had its answer after as long, is hung up on."""


@dataclass
class WantedReplicas:
    """What the latest decision wants.

    Attributes:
        namespace: Of the deployments.
        interval_s: Length of an interval.
        clock_s: A clock that only goes forward.
    """

    namespace: str
    interval_s: float
    clock_s: Callable[[], float] = time.monotonic
    _latest: tuple[float, str, dict[str, int]] = field(default=(-float("inf"), "", {}))

    def take(self, decision: Mapping[str, Any]) -> None:
        """Keeps the replicas of a decision, but of deployments of which nothing could be decided."""
        wanted = {
            row["deployment"]: round(row["wanted"]["replicas"])
            for row in decision["deployments"]
            if row["arm"] != HOLD and row["wanted"]["replicas"] is not None
        }
        self._latest = self.clock_s(), str(decision["time"]), wanted

    def now(self) -> tuple[str, dict[str, int]]:
        """When it was decided, and replicas by deployment; none where that is too long ago."""
        taken_s, decided, wanted = self._latest
        return decided, wanted if self.clock_s() - taken_s <= LASTS_INTERVALS * self.interval_s else {}

    def answer(self, target: str) -> tuple[int, str, bytes]:
        """Status, type and content for a path with its query."""
        path, asked = urlparse(target).path.rstrip("/"), parse_qs(urlparse(target).query)
        decided, wanted = self.now()
        if path == "/metrics":
            head = f"# HELP {METRIC} Replicas that schedtwin autoscale wants.\n# TYPE {METRIC} gauge\n"
            lines = [f'{METRIC}{{{LABEL}="{name}"}} {number}\n' for name, number in sorted(wanted.items())]
            return 200, "text/plain; version=0.0.4", (head + "".join(lines)).encode()
        if path == f"/apis/{GROUP}":
            resource = {
                "name": METRIC,
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
            listed = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": GROUP,
                "resources": [resource],
            }
            return 200, "application/json", json.dumps(listed).encode()
        if path != f"/apis/{GROUP}/namespaces/{self.namespace}/{METRIC}":
            return 404, "application/json", json.dumps(_status(f"there is nothing at {path}")).encode()
        try:
            chosen = _selected(",".join(asked.get("labelSelector", [])), wanted)
        except ValueError as error:
            return 400, "application/json", json.dumps(_status(str(error), 400)).encode()
        items = [
            {"metricName": METRIC, "metricLabels": {LABEL: name}, "timestamp": decided, "value": str(number)}
            for name, number in sorted(chosen.items())
        ]
        found = {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": items}
        return 200, "application/json", json.dumps(found).encode()


@contextmanager
def offering(
    address: str, wanted: WantedReplicas, cert: Path | None = None, key: Path | None = None
) -> Iterator[int]:
    """Serves what is wanted at `HOST:PORT`, by TLS where there is a certificate, meanwhile; yields the port.

    Raises:
        ConfigError: There is no such address, it is taken, or certificate or key cannot be read.
    """
    host, _, port = address.rpartition(":")
    allowed = "HOST:PORT, such as 0.0.0.0:8443 or 127.0.0.1:9465"
    if not host or not port.isdecimal():  # without a host it would be every address of the machine
        raise ConfigError(
            "this is no address to offer anything at", where=f"--external {address}", allowed=allowed
        )
    try:
        server = _MetricsServer((host.strip("[]"), int(port)), _handler_of(wanted))
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"the wanted replicas cannot be offered there ({error})",
            where=f"--external {address}",
            allowed=allowed,
            advice="name a port that is free",
        ) from error
    with server:
        if cert is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(cert, key)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"certificate or key cannot be read ({error})",
                    where=f"--external-cert {cert}",
                    allowed="PEM files",
                    advice="name both, the key as --external-key",
                ) from error
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has gone, or shakes no hands, is no error; others are told as usual."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler_of(wanted: WantedReplicas) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_S

        def handle(self) -> None:
            """Answers; a caller that comes drop by drop must not hold its thread for ever."""
            alarm = threading.Timer(SILENT_S, self._hang_up)
            alarm.daemon = True
            alarm.start()
            try:
                super().handle()
            finally:
                alarm.cancel()

        def _hang_up(self) -> None:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def do_GET(self) -> None:
            status, kind, content = wanted.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: callers come every few seconds."""

    return Handler


def _selected(selector: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """The deployments that a label selector chooses; ValueError for one of other labels or forms."""
    chosen = dict(wanted)
    for part in filter(None, selector.split(",")):
        label, _, name = part.replace("==", "=").partition("=")
        if label != LABEL or not name:
            raise ValueError(f"labelSelector {part!r}: only {LABEL}=NAME is known")
        chosen = {one: number for one, number in chosen.items() if one == name}
    return chosen


def _status(message: str, code: int = 404) -> dict[str, Any]:
    """A failure as the Kubernetes API words it."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}

"""An API server on loopback that knows deployments, nodes and one lease, records what it is asked, fails on demand."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAMESPACE = "edge"
_SCALE = re.compile(rf"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/([^/]+)/scale")
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class StandIn:
    """What the server holds.

    Attributes:
        deployments: Name -> replicas asked for, ready, version, service, node.
        lease: The lease as JSON; None where there is none.
        closed: Nodes that take no pods.
        writes: (name, replicas, whether it was only tried), in order.
        faults: (what, number of the request of its kind from 1) -> a status, or seconds of silence; `what` is "list",
            "try", "write", "lease".
        tokens: The Authorization of every request, in order.
    """

    def __init__(self, deployments: dict[str, tuple[str, str, int, int]]) -> None:
        self.deployments = {
            name: {"service": service, "node": node, "asked": asked, "ready": ready, "version": 1}
            for name, (service, node, asked, ready) in deployments.items()
        }
        self.lease: dict[str, Any] | None = None
        self.closed: set[str] = set()
        self.writes: list[tuple[str, int, bool]] = []
        self.faults: dict[tuple[str, int], float] = {}
        self.counts: dict[str, int] = {}
        self.url, self.tokens = "", list[str | None]()

    def answer(self, method: str, address: str, content: Any) -> tuple[int, Any]:
        """Status and content of an answer."""
        split = urlsplit(address)
        path, only_try = split.path, "dryRun" in parse_qs(split.query)
        scale = _SCALE.fullmatch(path)
        kind = "list" if scale is None else "read" if method == "GET" else "try" if only_try else "write"
        kind = "lease" if path.startswith(_LEASES) else kind
        self.counts[kind] = self.counts.get(kind, 0) + 1
        fault = self.faults.get((kind, self.counts[kind]), 0)
        if fault >= 100:
            return int(fault), {"kind": "Status", "message": "as demanded", "code": int(fault)}
        if scale is not None:
            found = self._scale(method, scale[1], content, only_try)
        elif kind == "lease":
            found = self._lease(method, content)
        elif path.endswith("/deployments"):
            found = 200, {"items": [self._deployment(name) for name in self.deployments]}
        else:
            nodes = sorted({one["node"] for one in self.deployments.values()})
            found = 200, {"items": [self._node(name) for name in nodes]}
        time.sleep(fault)  # the write is made, the answer is late
        return found

    def _scale(self, method: str, name: str, content: Any, only_try: bool) -> tuple[int, Any]:
        one = self.deployments[name]
        if method == "PUT":
            version = content["metadata"].get("resourceVersion")
            if version not in (None, str(one["version"])):
                return 409, {"kind": "Status", "reason": "Conflict"}
            self.writes.append((name, content["spec"]["replicas"], only_try))
            if not only_try:
                one["asked"], one["version"] = content["spec"]["replicas"], one["version"] + 1
        meta = {"name": name, "resourceVersion": str(one["version"])}
        return 200, {"metadata": meta, "spec": {"replicas": one["asked"]}}

    def _lease(self, method: str, content: Any) -> tuple[int, Any]:
        if method == "GET":
            return (404, {"kind": "Status"}) if self.lease is None else (200, self.lease)
        held = 0 if self.lease is None else int(self.lease["metadata"]["resourceVersion"])
        if method == "PUT" and content["metadata"].get("resourceVersion") != str(held):
            return 409, {"kind": "Status"}
        content["metadata"]["resourceVersion"] = str(held + 1)
        self.lease = content
        return 200, content

    def _deployment(self, name: str) -> dict[str, Any]:
        one = self.deployments[name]
        labels = {"schedtwin.io/service": one["service"], "schedtwin.io/node": one["node"]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "one"}]}}
        return {
            "metadata": {"name": name, "labels": labels, "resourceVersion": str(one["version"])},
            "spec": {"replicas": one["asked"], "selector": {"matchLabels": labels}, "template": template},
            "status": {"readyReplicas": one["ready"]},
        }

    def _node(self, name: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": "True"}]
        return {
            "metadata": {"name": name},
            "spec": {"unschedulable": name in self.closed},
            "status": {"conditions": conditions},
        }


@contextmanager
def listening(held: StandIn) -> Iterator[StandIn]:
    """The server, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms for its headers to be acknowledged

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            held.tokens.append(self.headers.get("Authorization"))
            status, content = held.answer(self.command, self.path, json.loads(body) if body else None)
            told = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_PUT = do_POST = _handle

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def handle(self) -> None:
            """Whoever has stopped waiting is no error."""
            try:
                super().handle()
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

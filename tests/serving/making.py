"""Doubles and questions for the server's tests."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import orjson

from offline_rl.runner import Decision, Held, Node, Request
from offline_rl.serving.app import App
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.decision_log import DecisionLog
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.policies import PolicySlot, ServedPolicy
from offline_rl.serving.server import guarded_server, listen
from offline_rl.serving.service import Service

NAMES = ("node-0", "node-1", "node-2", "node-3")


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether it becomes true within so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(0.02)
    return False


class MadeBooks:
    """Books that remember what they were told, and a policy that likes later nodes better."""

    def __init__(self, nodes: Sequence[Node], answer: Callable[[Decision], Decision]) -> None:
        self.names, self.answer = tuple(node.name for node in nodes), answer
        self.held: dict[str, tuple[str, Held]] = {}
        self.started: list[str] = []
        self.ended: list[tuple[str, float | None]] = []
        self.older: MadeBooks | None = None

    def hold(self, request_id: str, node: str, held: Held, *, startup_s: float = 0.0) -> None:
        assert request_id not in self.held
        self.held[request_id] = node, held

    def start(self, request_id: str, at_s: float) -> bool:
        self.started.append(request_id)
        return True

    def remember(self, older: "MadeBooks") -> None:
        self.older = older

    def startup_s(self, node: str, held: Held) -> float:
        return 0.0

    def finish(self, request_id: str, ran_until_s: float | None = None, **_how: bool) -> bool:
        self.ended.append((request_id, ran_until_s))
        return self.held.pop(request_id, None) is not None

    def set_available(self, node: str, available: bool) -> None:
        pass

    def question(
        self, request: Request, clock_s: float, nodes: tuple[Node, ...] = ()
    ) -> Callable[[], Decision]:
        candidates, names = set(request.candidates or ()), tuple(node.name for node in nodes) or self.names
        legal = np.array([name in candidates for name in names], bool)
        scores = np.arange(len(names), dtype=np.float32)
        best = names[int(np.flatnonzero(legal)[-1])] if legal.any() else None
        decision = Decision(best, names, scores, legal, 0, 0)
        return lambda: self.answer(decision)

    def rule_question(
        self, request: Request, clock_s: float, nodes: tuple[Node, ...] = ()
    ) -> Callable[[], Decision]:
        """A rule that likes the second node best."""
        names = self.names
        scores = np.array([name == NAMES[1] for name in names], np.float32)
        return lambda: Decision(NAMES[1], names, scores, np.ones(len(names), bool), 0, 0)


def made_policy(
    answer: Callable[[Decision], Decision] = lambda decision: decision,
    content_hash: str = "made",
    *,
    has_rule: bool = False,
) -> ServedPolicy:
    """A policy of four nodes with 16 cores that names the last candidate; `answer` may delay, spoil or replace it."""
    nodes = tuple(Node(name, site="zone-a", cpu_cores=16.0, memory_gib=64.0) for name in NAMES)
    return ServedPolicy(
        content_hash, nodes, lambda known, clock_s: MadeBooks(known, answer), site="zone-a", has_rule=has_rule
    )


def made_service(
    policy: ServedPolicy | Callable[[], ServedPolicy] | None = None,
    config: ServiceConfig | None = None,
    log: Path | None = None,
    clock: Callable[[], float] = lambda: 1000.0,
) -> Service:
    metrics = Metrics()
    load = policy if callable(policy) else lambda: policy or made_policy()
    config = config or ServiceConfig(deadline_s=5.0, seed=0)
    return Service(PolicySlot(load, metrics), config, DecisionLog(log, metrics), metrics, clock)


def pod(uid: str = "u1", cpu: str = "1", **metadata: object) -> dict:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    return {
        "metadata": {"uid": uid, "name": "pod", "namespace": "shop", **metadata},
        "spec": {"containers": containers},
    }


def node_object(name: str, cpu: str = "16", **spec: object) -> dict:
    status = {"allocatable": {"cpu": cpu, "memory": "64Gi"}}
    return {
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "zone-a"}},
        "spec": spec,
        "status": status,
    }


async def call(
    app: App,
    path: str,
    content: object = None,
    *,
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
    client: tuple[str, int] = ("127.0.0.1", 1),
) -> tuple[int, object]:
    """Status and content of one call, without a network; `content` may be bytes."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    sent: list = []

    async def receive() -> dict:
        return {"type": "http.request", "body": body}

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": list(headers), "client": client}
    await app(scope, receive, send)
    kind = dict(sent[0]["headers"])[b"content-type"]
    answer = sent[1]["body"]
    return sent[0]["status"], orjson.loads(answer) if kind == b"application/json" else answer.decode()


def asked(app: App, path: str, content: object = None, **options: object) -> tuple[int, object]:
    """One call on a loop of its own."""
    return asyncio.run(call(app, path, content, **options))


@asynccontextmanager
async def listening(
    app: App, limit: int | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of a server in this process; `limit` connections."""
    server, listener = guarded_server(app, app.service.metrics, tls), listen("127.0.0.1", 0)
    if limit is not None:
        server.connections.limit = limit
    task = asyncio.create_task(server._serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


def metric(service: Service, name: str) -> float:
    """The value of a metric, labels included in its name."""
    for line in service.metrics.text().decode().splitlines():
        if line.startswith(f"schedtwin_{name} "):
            return float(line.split()[-1])
    return 0.0

"""The HTTP endpoints of the decision service, as an ASGI application.

| path | |
|---|---|
| `POST /filter`, `POST /prioritize` | a Kubernetes scheduler extender (`offline_rl.serving.extender`) |
| `POST /decide`, `POST /events`, `POST /nodes` | plain JSON (`offline_rl.serving.plain`) |
| `POST /assign` | edges for many requests at once (`offline_rl.serving.assigning`) |
| `POST /order` | which waiting jobs start now (`offline_rl.serving.ordering`): a queue's bundle alone |
| `POST /reload` | load the bundle anew; refused from other machines where no token is set |
| `GET /healthz`, `GET /readyz` | alive; able to answer. No token needed |
| `GET /metrics` | Prometheus |

Whatever comes in, something sensible goes out: 400 for what cannot be understood, 401 without the token, 404, 405, 408
for a body that does not arrive, 413 for one that is too large, 503 where there is no memory or no time for it.
`/filter` also says it in the result's `Error`.
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from logs_schema.errors import SchedtwinError
from offline_rl.errors import PolicyInputError
from offline_rl.serving.assigning import assign
from offline_rl.serving.bodies import NOT_JSON, Bodies, Receive, Share, json_of, read_body
from offline_rl.serving.errors import BadCallError, QueryError
from offline_rl.serving.extender import (
    GO,
    Spelling,
    args_of,
    filter_error,
    filter_result,
    host_priorities,
    spelling_of,
)
from offline_rl.serving.kubernetes import NodeObjects
from offline_rl.serving.node_lists import NodeLists
from offline_rl.serving.ordering import QueueDoor
from offline_rl.serving.plain import events_of_json, inventory_of_json, query_of_json
from offline_rl.serving.queries import PlacementQuery
from offline_rl.serving.service import Service

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Reply = tuple[int, Any]
"""Status and JSON content; bytes are sent as they are."""

SHED_LAG_S = 0.2
"""Least lag of the event loop at which questions are turned away unread: kube-scheduler gives up after as long.

Where the service's deadline is longer, callers wait longer, and the deadline is the bound."""
PIECE_BYTES = 2**18
"""Bytes of an answer that are handed over at once."""
_QUESTIONS = ("/filter", "/prioritize", "/decide", "/assign", "/order")
_OF_NODES = ("/filter", "/prioritize", "/decide", "/events", "/nodes")
"""What only a policy of placement answers."""
_LARGE_INVENTORY = (
    "; of a node only name, labels, unschedulable and allocatable are read: "
    "offline_rl/README.md has a jq filter that leaves the rest out"
)
_UNGUARDED = ("/healthz", "/readyz")


class App:
    """The application.

    Args:
        service: Answers the questions.
        token: What callers must present (`Authorization: Bearer`, or as the password of `Basic`); None asks for none.
        on_start, on_stop: Called when the server begins and ends.
    """

    def __init__(
        self,
        service: Service,
        token: str | None = None,
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self.service, self.token, self.ready = service, token, False
        self._on_start, self._on_stop = on_start, on_stop
        self.bodies = Bodies()
        self._assigning, self._ordering = asyncio.Lock(), asyncio.Lock()
        self._queue = QueueDoor(service.config, service.metrics)
        self._objects = NodeObjects()
        self._lists = NodeLists(self._objects)
        self._endpoints: dict[str, tuple[str, Callable[[Scope, bytes, float], Awaitable[Reply]]]] = {
            "/filter": ("POST", self._filter),
            "/prioritize": ("POST", self._prioritize),
            "/decide": ("POST", self._decide),
            "/assign": ("POST", self._assign),
            "/order": ("POST", self._order),
            "/events": ("POST", self._events),
            "/nodes": ("POST", self._nodes),
            "/reload": ("POST", self._reload),
            "/healthz": ("GET", self._healthz),
            "/readyz": ("GET", self._readyz),
            "/metrics": ("GET", self._metrics),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one call, or the server's beginning and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            begun_s = time.monotonic()
            path = scope["path"] if scope["path"] in self._endpoints else "other"
            with Share(self.bodies) as share:
                try:
                    status, content = await self._serve(scope, receive, begun_s, share)
                except BadCallError as error:
                    advice = _LARGE_INVENTORY if error.status == 413 and path == "/nodes" else ""
                    status, content = error.status, {"error": error.message + advice}
                await _send(send, status, content)
            metrics = self.service.metrics
            metrics.answers.labels(path, status).inc()
            metrics.answer_s.labels(path).observe(time.monotonic() - begun_s)

    async def _serve(self, scope: Scope, receive: Receive, begun_s: float, share: Share) -> Reply:
        path = scope["path"]
        policy = self.service.slot.policy
        closed: tuple[str, ...] = ("/order",) if policy.queue is None else ()
        if policy.queue is not None or policy.assigner is not None:
            closed += _OF_NODES
        method, endpoint = self._endpoints.get(path, ("", None))
        if endpoint is None or path in closed:
            there = ", ".join(name for name in self._endpoints if name not in closed)
            raise BadCallError(404, f"no such path; there are {there}")
        if scope["method"] != method:
            raise BadCallError(405, f"{path} takes {method}")
        headers = {
            name: value for name, value in scope["headers"] if name in (b"authorization", b"content-length")
        }
        if (
            self.token is not None
            and path not in _UNGUARDED
            and not self._admits(headers.get(b"authorization", b""))
        ):
            raise BadCallError(401, "the token is missing or wrong")
        if path in _QUESTIONS and self.service.loop_lag.lag_s > max(
            SHED_LAG_S, self.service.config.deadline_s
        ):
            self.service.metrics.shed.inc()
            raise BadCallError(503, "too many questions: decide without an answer")
        body = await read_body(receive, headers.get(b"content-length", b"0"), share)
        try:
            return await endpoint(scope, body, begun_s)
        except (QueryError, PolicyInputError) as error:
            return 400, {"error": str(error)}

    async def _filter(self, _scope: Scope, body: bytes, _begun_s: float) -> Reply:
        words = GO
        try:
            parsed = self._lists.parse(body)
            words = spelling_of(parsed.content)
            args = args_of(parsed.content, self.service.clock(), self._objects, parsed.seen)
            view = self.service.filter(args.query)
        except (QueryError, PolicyInputError) as error:
            status = 400 if error.what == NOT_JSON else 200  # kube-scheduler reads `Error` of a 200 only
            return status, filter_error(str(error), words)
        return 200, filter_result(args, view.failed, view.unresolvable)

    async def _prioritize(self, _scope: Scope, body: bytes, begun_s: float) -> Reply:
        query, words = self._query_of(body)
        answer = await self.service.decide(query, begun_s)
        return 200, host_priorities(answer.view.names, answer.scores, words)

    def _query_of(self, body: bytes) -> tuple[PlacementQuery, Spelling]:
        """What `/prioritize` is asked; what else came along need not be kept until it is answered."""
        parsed = self._lists.parse(body)
        args = args_of(parsed.content, self.service.clock(), self._objects, parsed.seen)
        return args.query, args.spelling

    async def _decide(self, _scope: Scope, body: bytes, begun_s: float) -> Reply:
        service = self.service
        query = query_of_json(json_of(body), service.names(), service.clock())
        answer = await service.decide(query, begun_s)
        return 200, {
            "request_id": query.request_id,
            "node": answer.node,
            "arm": answer.arm,
            "reason": answer.reason or None,
            "scores": dict(zip(answer.view.names, answer.scores, strict=True)),
            "infeasible": answer.view.unresolvable | answer.view.failed,
            "unknown_labels": None if answer.decision is None else answer.decision.num_unknown,
            "out_of_range": None if answer.decision is None else answer.decision.num_out_of_range,
        }

    async def _assign(self, _scope: Scope, body: bytes, _begun_s: float) -> Reply:
        content = json_of(body)
        if self._assigning.locked():
            raise BadCallError(503, "other requests are being assigned: ask again")
        async with self._assigning:  # one at a time: each takes a processor, and memory for its pairs
            return 200, await asyncio.to_thread(assign, content, self.service.slot.policy.assigner)

    async def _order(self, _scope: Scope, body: bytes, _begun_s: float) -> Reply:
        policy = self.service.slot.policy.queue
        if policy is None:  # replaced while this call came in
            raise BadCallError(404, "the bundle orders no queue")
        async with self._ordering:  # one after the other: each goes on from the books of the last one
            worker = self.service.slot.worker
            return 200, await self._queue.order(policy, json_of(body), self.service.clock(), worker)

    async def _events(self, _scope: Scope, body: bytes, _begun_s: float) -> Reply:
        events = events_of_json(json_of(body), self.service.clock())
        known, unknown, refused = self.service.report(events)
        answer: dict[str, Any] = {"known": known, "unknown": unknown}
        if not refused:
            return 200, answer
        answer["refused"] = [{"index": index, "error": error} for index, error in refused.items()]
        if len(refused) < len(events):
            return 200, answer
        return 400, {"error": answer["refused"][0]["error"], **answer}

    async def _nodes(self, _scope: Scope, body: bytes, _begun_s: float) -> Reply:
        is_kept = await self.service.stock(inventory_of_json(json_of(body)))
        cluster = self.service.cluster
        answer: dict[str, Any] = {"num_nodes": len(cluster.names), "absent": len(cluster.inventory.absent)}
        return 200, answer if is_kept else answer | {"kept": False}

    async def _reload(self, scope: Scope, _body: bytes, _begun_s: float) -> Reply:
        if self.token is None and not _is_loopback(scope):
            raise BadCallError(403, "only this machine may reload the bundle")
        try:
            policy = await asyncio.to_thread(self.service.slot.reload)
        except SchedtwinError as error:
            kept = self.service.slot.policy.content_hash
            return 409, {"error": str(error), "content_hash": kept}
        return 200, {"content_hash": policy.content_hash}

    async def _healthz(self, _scope: Scope, _body: bytes, _begun_s: float) -> Reply:
        return 200, {"status": "alive"}

    async def _readyz(self, _scope: Scope, _body: bytes, _begun_s: float) -> Reply:
        policy = self.service.slot.policy
        return (200 if self.ready else 503), {"ready": self.ready, "content_hash": policy.content_hash}

    async def _metrics(self, _scope: Scope, _body: bytes, _begun_s: float) -> Reply:
        self.service.expire()
        return 200, self.service.metrics.text()

    def _admits(self, header: bytes) -> bool:
        """Whether an `Authorization` header presents the token."""
        kind, _, value = header.partition(b" ")
        if kind.lower() == b"basic":
            try:
                value = base64.b64decode(value, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        return hmac.compare_digest(value.strip(), (self.token or "").encode())

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.startup":
                self.ready = True
                self.service.loop_lag.start()
                if self._on_start:
                    self._on_start()
                await send({"type": "lifespan.startup.complete"})
            elif kind == "lifespan.shutdown":
                self.ready = False
                self.service.loop_lag.stop()
                await self.service.drain()
                if self._on_stop:
                    self._on_stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _send(send: Send, status: int, content: Any) -> None:
    plain = isinstance(content, bytes)
    body = content if plain else orjson.dumps(content)
    kind = b"text/plain; version=0.0.4; charset=utf-8" if plain else b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if status in (401, 408, 413):
        headers.append((b"connection", b"close"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    # The last piece is sent when most of the others have been taken
    for begin in range(0, len(body), PIECE_BYTES):
        piece, more = body[begin : begin + PIECE_BYTES], begin + PIECE_BYTES < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def _is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False

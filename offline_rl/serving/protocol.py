"""HTTP/1.1 of the server: uvicorn's, with bounds on what a caller may send before its token is checked.

Bytes of a head (request line and headers), and the number of its lines, are bounded before the token is looked at.
Nothing lasts: a caller that connects and sends nothing, sends a head drop by drop, or does not read its answer, is
disconnected.
"""

import asyncio
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from offline_rl.serving.connections import Connections

MAX_HEAD_BYTES = 16 * 2**10
"""Longest head; kube-scheduler's have some 300 bytes."""
MAX_HEAD_LINES = 64
HEADER_S = 10.0
"""How long a caller may take to send a head."""
QUESTION_S = 30.0
"""How long a question may take from the end of its head to the end of its answer, the sending of both included."""
KEEP_ALIVE_S = 120
"""How long an idle connection stays: longer than Go's 90 s, so that kube-scheduler never writes into a closed one."""
CROWDED_KEEP_ALIVE_S = 10
"""The same where half of the room is taken."""


class HeadTooLargeError(Exception):
    """A head is larger than any caller's should be."""


class GuardedProtocol(HttpToolsProtocol):
    """One caller's connection.

    Args:
        config, server_state, app_state: uvicorn's.
        connections: The connected callers; the caller has been counted in.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.book = connections
        self.greeting: asyncio.Task | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._head_bytes = self._head_lines = self._unparsed_bytes = 0
        self._head_too_large = self._in_content = False

    def hang_up(self) -> None:
        """Ends the connection at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller has connected."""
        super().connection_made(transport)
        self._wait(HEADER_S)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: those of a head are fed in pieces, and counted until the parser makes something of them."""
        if self._patience is None:  # an idle caller has begun to send, be it empty lines
            self._wait(HEADER_S)
        while data and not self.transport.is_closing():
            size = len(data) if self._in_content else MAX_HEAD_BYTES
            piece, data = data[:size], data[size:]
            self._unparsed_bytes += len(piece)
            super().data_received(piece)
            if self._unparsed_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._head_too_large = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """A question begins."""
        self._head_bytes = self._head_lines = self._unparsed_bytes = 0
        self._wait(HEADER_S)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path has come."""
        self._count(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, has come."""
        self._count(len(name) + len(value), 1)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The caller has sent a head."""
        self._unparsed_bytes, self._in_content = 0, True
        self.book.work(self)
        self._wait(QUESTION_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the content has come."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of the question has come."""
        self._unparsed_bytes, self._in_content = 0, False
        super().on_message_complete()
        if self.cycle.response_complete:  # it was turned away before
            self._wait(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """The answer is on its way, and perhaps the next question has come already."""
        self.timeout_keep_alive = CROWDED_KEEP_ALIVE_S if self.book.crowded else KEEP_ALIVE_S
        busy = bool(self.pipeline)
        super().on_response_complete()
        if busy or self.transport.is_closing() or self.flow.write_paused:  # the answer may never be taken
            self._wait(QUESTION_S)
        else:
            self._stop_waiting()
        if not busy:
            self.book.rest(self)

    def resume_writing(self) -> None:
        """The caller has taken most of what was held for it."""
        super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._wait(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """The connection has been idle for too long."""
        self.hang_up()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no question, and hangs up: 431 where the head was too large, else 400."""
        status, error = 400, msg or "this is no HTTP/1.1"
        if self._head_too_large:
            status = 431
            error = f"the head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEAD_LINES} lines"
        body = orjson.dumps({"error": error})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(
            body
        )
        self.book.metrics.answers.labels("other", status).inc()
        self.headers = []
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        self._wait(HEADER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller has gone."""
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self.book.leave(self)
        super().connection_lost(exc)

    def _count(self, num_bytes: int, num_lines: int) -> None:
        self._unparsed_bytes = 0
        self._head_bytes += num_bytes
        self._head_lines += num_lines
        if self._head_bytes > MAX_HEAD_BYTES or self._head_lines > MAX_HEAD_LINES:
            self._head_too_large = True
            raise HeadTooLargeError

    def _wait(self, patience_s: float) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(patience_s, self.hang_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

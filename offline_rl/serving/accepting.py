"""Accepting connections on a listening socket: counted, and so few at a time that descriptors never run out."""

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from offline_rl.serving.connections import Connections
from offline_rl.serving.protocol import HEADER_S, GuardedProtocol

AT_ONCE = 16
"""Callers accepted before those whose connection is closed can have left."""
RETRY_S = 0.2
"""Seconds without accepting after the system had no descriptor left."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts callers on one socket; stands where uvicorn has an `asyncio.Server`.

    Args:
        listener: Listening.
        connections: Decides who may stay.
        make: Makes a caller's protocol.
        tls: None for plain HTTP.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        make: Callable[[], GuardedProtocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener, self._connections, self._make, self._tls = listener, connections, make, tls
        self._loop = asyncio.get_running_loop()
        self._greetings: set[asyncio.Task] = set()
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accepts no more callers, and hangs up on those still in their TLS handshake."""
        self._pause()
        for greeting in self._greetings:
            greeting.cancel()

    async def wait_closed(self) -> None:
        """Returns when no handshake is under way."""
        await asyncio.gather(*self._greetings, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                caller, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._give_up_for_now(error)
                return
            protocol = self._make()
            if not self._connections.enter(protocol):
                caller.close()
                continue
            greeting = self._loop.create_task(self._greet(caller, protocol))
            self._greetings.add(greeting)
            greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, caller: socket.socket, protocol: GuardedProtocol) -> None:
        """Shakes hands, if there is TLS, and leaves the rest to the protocol."""
        protocol.greeting = asyncio.current_task()
        self._connections.rest(protocol)
        patience_s = HEADER_S if self._tls else None
        try:
            with suppress(OSError):  # no TLS, or the caller has gone
                await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    caller,
                    ssl=self._tls,
                    ssl_handshake_timeout=patience_s,
                    ssl_shutdown_timeout=patience_s,
                )
        finally:
            if protocol.transport is None:  # else it learns by itself that the connection is lost
                self._connections.leave(protocol)

    def _give_up_for_now(self, error: OSError) -> None:
        """The system gives no descriptor: room is made, and accepting begins again in a while."""
        if error.errno in _EXHAUSTED:
            for _ in range(AT_ONCE):
                self._connections.shed()
        self._connections.notices.write("accept", f"callers cannot be accepted: {error}")
        self._pause()
        self._retry = self._loop.call_later(RETRY_S, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _pause(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listener)


class GuardedServer(uvicorn.Server):
    """uvicorn's server with its own way of accepting.

    Args:
        config: uvicorn's.
        connections: Decides who may stay.
        tls: None for plain HTTP.
    """

    def __init__(
        self, config: uvicorn.Config, connections: Connections, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(config)
        self.connections, self._tls = connections, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept callers."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(3)
        self.servers = [
            Acceptor(listener, self.connections, self._make, self._tls)  # type: ignore[misc]
            for listener in sockets or []
        ]
        self.started = True

    def _make(self) -> GuardedProtocol:
        return GuardedProtocol(self.config, self.server_state, self.lifespan.state, self.connections)

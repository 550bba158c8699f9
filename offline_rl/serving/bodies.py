"""Contents of questions: how large one may be, how long it may take to arrive, and how much all of them may hold."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

import orjson

from offline_rl.serving.errors import BadCallError, QueryError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MAX_BODY_BYTES = 32 * 2**20
"""Largest question: 5,000 whole node objects fit."""
MAX_BODIES_BYTES = 128 * 2**20
"""All contents in hand together, but for the first `FREE_BYTES` of each."""
MAX_TREE_BYTES = 8 * 2**20
"""Largest JSON that is parsed as a whole: its objects take up to twenty times its bytes. Node objects are left out."""
FREE_BYTES = 64 * 2**10
"""What every content may hold, however full it is: large ones must not keep small ones out."""
BODY_S = 10.0
"""How long a question's body may take to arrive."""


NOT_JSON = "the content is no JSON"


class Bodies:
    """What the contents in hand hold together."""

    def __init__(self) -> None:
        self.num_bytes = 0


class Share:
    """One content's share of what all may hold; given back at the end of a `with`."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self._num_bytes, self._taken = bodies, 0, 0

    def __enter__(self) -> "Share":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bodies.num_bytes -= self._taken
        self._taken = 0

    def grow(self, num_bytes: int) -> None:
        """The content has become larger.

        Raises:
            BadCallError: It is too large, or all are together.
        """
        self._num_bytes += num_bytes
        if self._num_bytes > MAX_BODY_BYTES:
            raise too_large()
        wanted = max(0, self._num_bytes - FREE_BYTES)
        if self._bodies.num_bytes + wanted - self._taken > MAX_BODIES_BYTES:
            raise BadCallError(503, "other callers' contents take all the memory there is for them")
        self._bodies.num_bytes += wanted - self._taken
        self._taken = wanted


async def read_body(receive: Receive, length: bytes, share: Share) -> bytes:
    """The whole body.

    Args:
        receive: ASGI's.
        length: The header `content-length`.
        share: What the body may hold.

    Raises:
        BadCallError: It is too large, does not arrive in time or not at all, or the caller has gone.
    """
    if length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
        raise too_large()
    parts = []
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BadCallError(400, "the caller has gone")
                parts.append(message.get("body", b""))
                share.grow(len(parts[-1]))
                if not message.get("more_body"):
                    break
    except TimeoutError as error:
        raise BadCallError(408, f"the content did not arrive within {BODY_S:g} s") from error
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if length.isdigit() and int(length) and not body:  # what asks for another protocol is read no further
        raise BadCallError(
            400, f"a content of {int(length)} bytes is missing: ask by HTTP/1.1, without Upgrade"
        )
    return body


def too_large() -> BadCallError:
    """What a content beyond `MAX_BODY_BYTES` is answered with."""
    return BadCallError(413, f"the content is larger than {MAX_BODY_BYTES} bytes")


def json_of(content: bytes) -> Any:
    """The JSON value that a content stands for.

    Raises:
        QueryError: It is no JSON.
        BadCallError: It is too large to be parsed as a whole.
    """
    if len(content) > MAX_TREE_BYTES:
        raise BadCallError(
            413, f"the content is larger than {MAX_TREE_BYTES} bytes, node objects as Go writes them left out"
        )
    pauses = len(content) > FREE_BYTES and gc.isenabled()
    if pauses:  # it would look for garbage over and over among millions of new objects: eight times the time
        gc.disable()
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise QueryError(NOT_JSON, where=str(error)) from error
    finally:
        if pauses:
            gc.enable()

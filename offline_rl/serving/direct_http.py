"""HTTP calls that go where they are sent, by no proxy and to no other address, and end in time.

A client of the standard library follows redirects, and sends its headers along: a bearer token would reach whatever
host an answer names. Its timeout is one of silence: an answer that drips would be waited for without end.
"""

import time
from http.client import HTTPMessage, HTTPResponse
from typing import IO
from urllib.error import HTTPError
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)


class RefusedRedirects(HTTPRedirectHandler):
    """An error for every redirect."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """HTTPError, which names where the answer points to."""
        what = f"{msg}: a redirect to {newurl}, which is not followed"
        raise HTTPError(req.full_url, code, what, headers, fp)


def direct_opener(*handlers: BaseHandler) -> OpenerDirector:
    """Opens addresses without proxies and redirects."""
    return build_opener(ProxyHandler({}), RefusedRedirects(), *handlers)


def content_of(answer: HTTPResponse, most_bytes: int, within_s: float) -> bytes:
    """The content of an answer, `most_bytes` of it at most; TimeoutError where it has not come `within_s`."""
    end_s, parts = time.monotonic() + within_s, list[bytes]()
    while most_bytes > 0 and (part := answer.read1(most_bytes)):
        parts.append(part)
        most_bytes -= len(part)
        if time.monotonic() > end_s:
            raise TimeoutError(f"the answer is not whole after {within_s:g} s")
    return b"".join(parts)

"""HTTP calls that go where they are sent: by no proxy, and to no other address.

A client of the standard library follows redirects, and sends its headers along: a bearer token would reach whatever
host an answer names.
"""

from http.client import HTTPMessage
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
    """Opens addresses without proxies and redirects.

    Args:
        handlers: More of them, for TLS say.
    """
    return build_opener(ProxyHandler({}), RefusedRedirects(), *handlers)

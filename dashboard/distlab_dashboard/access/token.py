"""The token: required wherever others than this machine's users can reach the server.

As with Jupyter, the token is part of the printed address; the browser then keeps a cookie.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from tornado.httputil import HTTPServerRequest

from distlab.errors import ArgumentValueError
from distlab_dashboard.access.hosts import is_loopback

SHORTEST_TOKEN: Final = 8


def checked_token(address: str, token: str | None) -> str:
    """Returns the token to require, empty for none."""
    if token is None:
        if is_loopback(address):
            return ""
        raise ArgumentValueError(
            f"Everyone who can reach {address!r} could see the run, so a token is needed there. "
            "Pass token=secrets.token_urlsafe(), set the environment variable DISTLAB_TOKEN for a "
            "command, or listen on 127.0.0.1."
        )
    if len(token) < SHORTEST_TOKEN or token != token.strip() or not token.isprintable():
        raise ArgumentValueError(
            f"A token has at least {SHORTEST_TOKEN} printable characters and no white space at its "
            f"ends, got {len(token)} characters. Make one with secrets.token_urlsafe(), and use "
            "strip() on what was read from a file."
        )
    return token


class Token:
    """The token of a server, empty for none, and the cookie of browsers that presented it."""

    def __init__(self, text: str, port: int) -> None:
        self._text = text
        # The cookie's value is not made from the token, which nobody can look for in it.
        self.cookie = f"distlab-token-{port}", secrets.token_urlsafe()

    @property
    def required(self) -> bool:
        """True if there is a token."""
        return bool(self._text)

    def admits(self, request: HTTPServerRequest, given: str | None) -> bool:
        """Returns whether a request has the token or the cookie, or needs none."""
        name, value = self.cookie
        kept = request.cookies.get(name)
        return (
            not self._text
            or (kept is not None and _same(kept.value, value))
            or (given is not None and _same(given, self._text))
        )


def _same(given: str, wanted: str) -> bool:
    """Compares in a time that depends on the given text alone."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())

"""Access to the page: for everyone on this machine, and elsewhere with the token.

As with Jupyter, the token is part of the printed address; the browser then keeps a cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from tornado.httputil import HTTPServerRequest

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab_dashboard.brake import Brake
from distlab_dashboard.hosts import is_loopback

SHORTEST_TOKEN: Final = 8
LONGEST_TOKEN: Final = 1_000
"""Browsers and servers cut off longer addresses."""

ARGUMENT: Final = "token"
"""The argument of an address that holds the token."""


def checked_token(address: str, token: object) -> str:
    """Returns the token to require, empty for none."""
    if token is None:
        if is_loopback(address):
            return ""
        raise ArgumentValueError(
            f"Everyone who can reach {address!r} could see the run, so a token is needed there. "
            "Pass token=secrets.token_urlsafe(), set the environment variable DISTLAB_TOKEN for a "
            "command, or listen on 127.0.0.1."
        )
    if not isinstance(token, str):
        raise ArgumentTypeError(
            f"A token is a str, got {type(token).__name__}. Make one with secrets.token_urlsafe()."
        )
    if len(token) < SHORTEST_TOKEN:
        raise ArgumentValueError(
            f"A token has at least {SHORTEST_TOKEN} characters, got {len(token)}. Make one with "
            "secrets.token_urlsafe()."
        )
    if len(token) > LONGEST_TOKEN:
        raise ArgumentValueError(
            f"A token has at most {LONGEST_TOKEN} characters, since it is part of an address, got "
            f"{len(token)}. Make one with secrets.token_urlsafe()."
        )
    if token != token.strip() or not token.isprintable():
        raise ArgumentValueError(
            "A token neither begins nor ends with white space, and all of its characters can be "
            "printed; the given one differs. Use token.strip() on what was read from a file, or "
            "make one with secrets.token_urlsafe()."
        )
    return token


class Access:
    """Who may see the page: whoever has the token, or the cookie of somebody who had it."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._cookie = f"distlab-token-{port}"
        # Not made from the token: whoever gets hold of a cookie can't look for the token in it.
        self._pass = secrets.token_urlsafe()
        self._brake = Brake()

    @property
    def required(self) -> bool:
        """Whether there is a token."""
        return bool(self._token)

    @property
    def cookie(self) -> tuple[str, str]:
        """Name and value of the cookie for those who presented the token."""
        return self._cookie, self._pass

    def admits(self, request: HTTPServerRequest) -> bool:
        """Returns whether a request has the cookie, or needs none."""
        if not self._token:
            return True
        kept = request.cookies.get(self._cookie)
        return kept is not None and _same(kept.value, self._pass)

    def wait_seconds(self, request: HTTPServerRequest) -> int:
        """Returns how long the request's sender has to wait before a token of it is looked at."""
        return self._brake.wait_seconds(request.remote_ip or "", by_link=is_by_link(request))

    def is_token(self, request: HTTPServerRequest, given: str) -> bool:
        """Returns whether a request's token is the right one, and remembers wrong ones."""
        right = _same(given, self._token)
        if not right:
            self._brake.note_wrong(request.remote_ip or "", given, by_link=is_by_link(request))
        return right


def is_by_link(request: HTTPServerRequest) -> bool:
    """Returns whether somebody followed a link of another site, which no site can hide."""
    return request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}


def _same(given: str, wanted: str) -> bool:
    """Compares in a time that tells nothing of the texts, not even their lengths."""
    digests = [hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, wanted)]
    return hmac.compare_digest(*digests)

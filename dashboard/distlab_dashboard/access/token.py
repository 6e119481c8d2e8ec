"""The token: required wherever others than this machine's users can reach the server.

As with Jupyter, the token is part of the printed address; the browser then keeps a cookie.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, Literal, TypeAlias

from tornado.httputil import HTTPServerRequest

from distlab.errors import ArgumentValueError
from distlab_dashboard.access.hosts import is_loopback

SHORTEST_TOKEN: Final = 8
Role: TypeAlias = Literal["control", "view"]


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


def checked_view_token(token: str, view_token: str | None) -> str:
    """Returns the token of those who may only look, empty for none."""
    if view_token is None:
        return ""
    if not token or view_token == token:
        raise ArgumentValueError(
            "A view token lets others look who may not control, so a token of its own is needed "
            "for control. Pass another token, or set DISTLAB_TOKEN for a command."
        )
    return checked_token("", view_token)


class Token:
    """The tokens of a server, empty for none, and the cookies of browsers that presented them."""

    def __init__(self, text: str, view_text: str, port: int) -> None:
        # A cookie's value is not made from the token, which nobody can look for in it.
        roles: tuple[tuple[Role, str], ...] = (("control", text), ("view", view_text))
        self._texts = {role: secret for role, secret in roles if secret}
        self._cookies = {
            role: (f"distlab-{role}-{port}", secrets.token_urlsafe()) for role in self._texts
        }

    def cookie(self, role: Role) -> tuple[str, str] | None:
        """Returns the cookie to set, as name and value; None without a token."""
        return self._cookies.get(role)

    def role(self, request: HTTPServerRequest, given: str | None) -> Role | None:
        """Returns what a request may do by its token, else by its cookie; None for nothing."""
        if not self._texts:
            return "control"
        for role, text in self._texts.items():
            if given is not None and _same(given, text):
                return role
        for role, (name, value) in self._cookies.items():
            kept = request.cookies.get(name)
            if kept is not None and _same(kept.value, value):
                return role
        return None


def _same(given: str, wanted: str) -> bool:
    """Compares in a time that depends on the given text alone."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())

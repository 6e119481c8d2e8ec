"""Access to the page: for everyone on this machine, and elsewhere with the token.

As with Jupyter, the token is part of the printed address; the browser then keeps it in a
cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from typing import Final

from bokeh.server.auth_provider import AuthProvider
from tornado.web import RequestHandler

from distlab.errors import ArgumentValueError

SHORTEST_TOKEN: Final = 8
_COOKIE: Final = "distlab-token"
_LOGIN: Final = "/token"
_PAGE: Final = """<!doctype html><meta charset="utf-8"><title>distlab</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 34em; margin: 18vh auto; padding: 0 24px }
input, button { font: inherit; padding: 6px 10px }</style>
<h1>This dashboard needs its token</h1>
<p>Open the whole address that the server printed, or enter the token:</p>
<form method="get" action="./"><label>token <input name="token" type="password" autofocus></label>
<button>Open</button></form>
"""


def is_loopback(address: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def checked_token(address: str, token: str | None) -> str:
    """Returns the token to require, empty for none.

    Args:
      address: The address to listen on.
      token: The user's token.

    Raises:
      ArgumentValueError: Others can reach the address and there is no token, or the
        token is too short.
    """
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ArgumentValueError(
            f"A token has at least {SHORTEST_TOKEN} characters, got {len(token)}. Make one with "
            "secrets.token_urlsafe()."
        )
    if not is_loopback(address) and not token:
        raise ArgumentValueError(
            f"Everyone who can reach {address!r} could see the run, so a token is needed there. "
            "Pass token=secrets.token_urlsafe() (distlab dashboard --token ...), or listen on "
            "127.0.0.1."
        )
    return token or ""


def allowed(handler: RequestHandler, token: str) -> bool:
    """Returns whether a request has the token, in its address or in its cookie."""
    given = handler.get_query_argument("token", "")
    if given:
        return hmac.compare_digest(given.encode(), token.encode())
    kept = handler.get_cookie(_COOKIE, "") or ""
    return hmac.compare_digest(kept.encode(), _proof(token).encode())


def _proof(token: str) -> str:
    """Returns the cookie's value: not the token, which may have letters that no cookie has."""
    return hashlib.sha256(f"distlab {token}".encode()).hexdigest()


class TokenAccess(AuthProvider):
    """Admits requests with the token, and asks others for it."""

    def __init__(self, token: str) -> None:
        """Keeps the token.

        Args:
          token: The token.
        """
        self._token = token
        super().__init__()

    # Bokeh's types name the request here; its server passes the request's handler.
    @property
    def get_user(self) -> Callable[[RequestHandler], str | None]:  # type: ignore[override]
        """Returns the user of a request, web sockets included; None for no access."""

        def user(handler: RequestHandler) -> str | None:
            if not allowed(handler, self._token):
                return None
            if handler.get_query_argument("token", "") and not handler.request.headers.get(
                "Upgrade"
            ):
                handler.set_cookie(_COOKIE, _proof(self._token), httponly=True, samesite="Lax")
            return "viewer"

        return user

    @property
    def get_user_async(self) -> None:
        """Nothing is looked up elsewhere."""

    @property
    def get_login_url(self) -> None:
        """The page is this server's own."""

    @property
    def login_url(self) -> str:
        """Address of the page for requests without the token."""
        return _LOGIN

    @property
    def login_handler(self) -> type[RequestHandler]:
        """Handler of that page."""
        return _AskForToken

    @property
    def logout_url(self) -> None:
        """Closing the browser is enough."""

    @property
    def logout_handler(self) -> None:
        """Closing the browser is enough."""


class _AskForToken(RequestHandler):
    """Asks for the token."""

    def get(self) -> None:
        """Writes the page."""
        self.set_status(401)
        self.write(_PAGE)

"""Who may look: everyone on this machine, and elsewhere those who have the token.

As with Jupyter, the token is part of the address that is printed; the browser keeps
it in a cookie from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from typing import Any, Final

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
<p>Open the whole address that was printed where it is served, or give the token:</p>
<form method="get" action="./"><label>token <input name="token" type="password" autofocus></label>
<button>Open</button></form>
"""


def is_loopback(address: str) -> bool:
    """Says whether an address can be reached from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def checked_token(address: str, token: str | None) -> str:
    """Returns the token to ask for, empty for none.

    Args:
      address: the address to listen on.
      token: what the user gave.

    Raises:
      ArgumentValueError: the address can be reached by others and there is no
        token, or it is too short to be one.
    """
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ArgumentValueError(
            f"A token has at least {SHORTEST_TOKEN} characters, got {len(token)}. Make one with "
            "secrets.token_urlsafe()."
        )
    if not is_loopback(address) and not token:
        raise ArgumentValueError(
            f"Everyone who can reach {address!r} could look at the run, so a token is needed "
            "there. Give token=secrets.token_urlsafe() (distlab dashboard --token ...), or listen "
            "on 127.0.0.1."
        )
    return token or ""


def allowed(handler: RequestHandler, token: str) -> bool:
    """Says whether a request has the token, in its address or in its cookie."""
    given = handler.get_query_argument("token", "")
    if given:
        return hmac.compare_digest(given.encode(), token.encode())
    kept = handler.get_cookie(_COOKIE, "") or ""
    return hmac.compare_digest(kept.encode(), _proof(token).encode())


def _proof(token: str) -> str:
    """Returns what the cookie holds: not the token, which may have letters that no cookie has."""
    return hashlib.sha256(f"distlab {token}".encode()).hexdigest()


class TokenAccess(AuthProvider):  # type: ignore[misc] # Bokeh has no types here
    """Lets in who has the token, and shows others how to get in.

    Args:
      token: the token.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], str | None]:
        """What Bokeh asks about each request, web sockets included."""

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
        """Nothing is asked elsewhere."""

    @property
    def get_login_url(self) -> None:
        """The page is this server's own."""

    @property
    def login_url(self) -> str:
        """Where those without the token are sent."""
        return _LOGIN

    @property
    def login_handler(self) -> type[RequestHandler]:
        """What they are shown."""
        return _AskForToken

    @property
    def logout_url(self) -> None:
        """Closing the browser is enough."""

    @property
    def logout_handler(self) -> None:
        """Closing the browser is enough."""


class _AskForToken(RequestHandler):
    """Says that the token is needed."""

    def get(self) -> None:
        """Writes the page."""
        self.set_status(401)
        self.write(_PAGE)

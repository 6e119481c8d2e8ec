"""The page as an answer: what its scripts carry, and the cookie that replaces the token."""

from __future__ import annotations

import secrets
from typing import Any

from bokeh.server.session import ServerSession
from panel.io.server import DocHandler

from distlab_dashboard.access import Access
from distlab_dashboard.headers import POLICY, page_policy
from distlab_dashboard.hosts import Host


class Page(DocHandler):
    """Answers with the page of a new session."""

    # Bokeh's handlers get what they need from their constructor's arguments, which come here too.
    def initialize(self, *, origins: tuple[Host, ...], access: Access, **_: Any) -> None:
        """Prepares the headers; tornado calls it for each request.

        Args:
          origins: Hosts at which a proxy serves the page.
          access: Whose cookie the page gets.
        """
        self._nonce = secrets.token_urlsafe(16)
        self.set_header(POLICY, page_policy(self._nonce, origins))
        if access.required:
            self.set_cookie(*access.cookie, httponly=True, samesite="Lax")

    async def head(self) -> None:
        """Writes the headers of the page, and begins no session: the page's length is not known."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "text/html")
        prefix = self.application.prefix
        if prefix and self.request.path == prefix:
            self.redirect(f"{prefix}/" + (f"?{self.request.query}" if self.request.query else ""))
        else:
            await self.flush()

    # Bokeh's method is a coroutine; the types of tornado's decorator hide it.
    async def get_session(self) -> ServerSession:  # type: ignore[override]
        """Returns a session whose page carries this answer's nonce; Panel calls it."""
        session: ServerSession = await super().get_session()  # type: ignore[misc]
        session.document.template_variables["nonce"] = self._nonce
        return session

"""The page as an answer: what its scripts carry, and the cookie that replaces the token."""

from __future__ import annotations

import secrets
from typing import Any, Final

from bokeh.server.session import ServerSession
from panel.io.server import DocHandler

from distlab_dashboard.access import Access
from distlab_dashboard.headers import POLICY, page_policy
from distlab_dashboard.hosts import Host
from distlab_dashboard.refusal import Reason, refuse

MOST_UNCONNECTED: Final = 40
"""Sessions that may exist to which no browser is connected: of pages that have just been opened,
and of those that were closed in the last seconds."""

_RETRY_SECONDS: Final = 10


class Page(DocHandler):
    """Answers with the page of a new session."""

    # Bokeh's handlers get what they need from their constructor's arguments, which come here too.
    def initialize(self, *, origins: tuple[Host, ...], access: Access, **_: Any) -> None:
        """Prepares the headers; tornado calls it for each request."""
        self._origins = origins
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

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Answers with the page, unless many wait already for browsers; tornado calls it."""
        # Nothing waits between this and the new session: requests at once are counted as well.
        sessions = self.application_context.sessions
        if sum(not one.connection_count for one in sessions) < MOST_UNCONNECTED:
            await super().get(*args, **kwargs)  # type: ignore[misc] # a coroutine, as below
            return
        text = "Many pages of this dashboard were opened, and no browser shows them yet. Try again."
        refuse(self, Reason(503, "Too many pages", text, _RETRY_SECONDS), self._origins)

    # Bokeh's method is a coroutine; the types of tornado's decorator hide it.
    async def get_session(self) -> ServerSession:  # type: ignore[override]
        """Returns a session whose page carries this answer's nonce; Panel calls it."""
        session: ServerSession = await super().get_session()  # type: ignore[misc]
        session.document.template_variables["nonce"] = self._nonce
        return session

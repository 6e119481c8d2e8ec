"""The gate of the server: what each request must be, before anything of a run answers it.

It stands before Bokeh's web application, so that it holds for all of its addresses: pages,
web sockets, files and errors alike.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final
from urllib.parse import unquote

from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from panel.io.server import DocHandler
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router

from distlab.errors import NotARunError
from distlab_dashboard.access.arguments import ROLE, argument, keep_arguments, take_token
from distlab_dashboard.access.headers import POLICY, page_policy
from distlab_dashboard.access.hosts import Host, Hosts
from distlab_dashboard.access.messages import PageSocket
from distlab_dashboard.access.notices import Reason, Refusal
from distlab_dashboard.access.token import Role, Token
from distlab_dashboard.library import Library

_PAGE: Final = ("", "/")
_WEB_SOCKET: Final = "/ws"
_ICON: Final = "/favicon.ico"
_KNOWN: Final = re.compile(
    rf"/?|{_WEB_SOCKET}|{_ICON}|/health|/metrics|/export/[\w.]+"
    r"|/static/([\w@-][\w.@^-]*/)*[\w@-][\w.@^-]*\.(css|ico|js|map|png|svg|ttf|woff2?)",
    re.ASCII,
)
"""The addresses that the page needs, without steps out of a folder."""

_RUNS: Final = ("run", "compare")
"""The arguments of the page."""


class Gate(Router):
    """Passes on what may be answered, and refuses everything else."""

    def __init__(
        self, application: BokehTornado, hosts: Hosts, token: Token, library: Library
    ) -> None:
        self._application = application
        self._hosts = hosts
        self._token = token
        self._library = library

    def find_handler(
        self,
        request: HTTPServerRequest,
        **kwargs: object,  # noqa: ARG002 - none are given
    ) -> HTTPMessageDelegate | None:
        """Returns what answers a request; tornado calls it when its headers have come."""
        application, prefix, path = self._application, self._application.prefix, request.path
        if path != _ICON:
            path = path[len(prefix) :] if path.startswith(prefix) else "/nowhere"
        # Refused requests are logged as well, and bodies that can't be parsed as warnings.
        given = take_token(request)
        role = self._token.role(request, given)
        request.headers.pop("Content-Type", None)
        reason = (
            self._wrong_host(request)
            or self._wrong_sender(request, path)
            or self._wrong_token(role, path, given)
            or self._wrong_path(request, path)
        )
        if reason is not None:
            said = {"reason": reason, "policy": page_policy(self._hosts.origins)}
            return application.get_handler_delegate(request, Refusal, said)
        context: dict[str, object] = {
            "application_context": application.applications["/"],
            "bokeh_websocket_path": f"{prefix}{_WEB_SOCKET}",
        }
        if path == _WEB_SOCKET:
            return application.get_handler_delegate(request, PageSocket, context)
        if path not in _PAGE:
            return application.find_handler(request)
        # Bokeh would take a session from the address, or a header: each page begins its own.
        keep_arguments(request, _RUNS)
        request.headers.pop("Bokeh-Session-Id", None)
        assert role is not None
        request.arguments[ROLE] = [role.encode()]  # of the session: Bokeh keeps and signs it
        cookie = self._token.cookie(role)
        context |= {"origins": self._hosts.origins, "cookie": cookie}
        return application.get_handler_delegate(request, Page, context)

    def _wrong_host(self, request: HTTPServerRequest) -> Reason | None:
        header = request.headers.get("Host", "")
        if self._hosts.answers(header):
            return None
        text = (
            f"This server does not answer as {header or '(no host)':.200}. Open the address that "
            "it printed, or name the host of your proxy when you start it: --origin HOST."
        )
        return Reason(403, "Unknown host", text)

    def _wrong_sender(self, request: HTTPServerRequest, path: str) -> Reason | None:
        """Refuses requests of other sites' pages, but for links to the page."""
        headers = request.headers
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if origin is not None:
            if not self._hosts.admits(origin, headers.get("Host", "")):
                return _not_from(origin)
            if self._hosts.are_named(Host.of(origin)):
                return None
        if site in {None, "same-origin", "none"}:
            return None
        # Frames are sent by named hosts only, which the page's policy holds them to.
        wanted = {"document", "iframe"} if self._hosts.origins else {"document"}
        followed = headers.get("Sec-Fetch-Mode") == "navigate"
        if path in _PAGE and followed and headers.get("Sec-Fetch-Dest") in wanted:
            return None
        return _not_from("another site")

    @staticmethod
    def _wrong_token(role: Role | None, path: str, given: str | None) -> Reason | None:
        if role is not None:
            return None
        asks = path in _PAGE
        text = "Open the whole address that the server printed."
        text = "That is not this server's token." if given else text
        return Reason(
            401, "This dashboard needs its token", text + " Or enter the token:" * asks, asks=asks
        )

    def _wrong_path(self, request: HTTPServerRequest, path: str) -> Reason | None:
        """Refuses what the page does not need of Bokeh's application, and unknown runs."""
        if request.method not in {"GET", "HEAD"}:
            return Reason(405, "Not possible", "This server is only read from.")
        if not _KNOWN.fullmatch(unquote(path)):
            return Reason(404, "Nothing here", "This server has no such page.")
        for name in _RUNS if path in _PAGE else ():
            run = argument(request.query_arguments, name)
            if run is not None:
                try:
                    self._library.release(self._library.hold(run))
                except NotARunError as error:
                    return Reason(404, "No such run", str(error))
        return None


class Page(DocHandler):
    """Answers with the page of a new session."""

    # Bokeh's handlers get what they need from their constructor's arguments, which come here too.
    def initialize(
        self, *, origins: tuple[Host, ...], cookie: tuple[str, str] | None, **_: Any
    ) -> None:
        """Prepares the headers; tornado calls it for each request."""
        self._nonce = secrets.token_urlsafe(16)
        self.set_header(POLICY, page_policy(origins, self._nonce))
        if cookie is not None:
            self.set_cookie(*cookie, httponly=True, samesite="Lax")

    # Bokeh's method is a coroutine; the types of tornado's decorator hide it.
    async def get_session(self) -> ServerSession:  # type: ignore[override]
        """Returns a session whose page carries this answer's nonce; Panel calls it."""
        session: ServerSession = await super().get_session()  # type: ignore[misc]
        session.document.template_variables["nonce"] = self._nonce
        return session


def _not_from(sender: str) -> Reason:
    text = (
        f"Pages of {sender:.200} can't use this server. If a proxy serves the page there, name its "
        "host when you start the server: --origin HOST."
    )
    return Reason(403, "Not from there", text)

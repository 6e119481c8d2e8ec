"""The gate of the server: what each request must be, before anything of a run answers it.

It stands before Bokeh's web application, so that it holds for every address of it: pages,
web sockets, files and errors alike.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from bokeh.server.tornado import BokehTornado
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router

from distlab.errors import NotARunError
from distlab_dashboard.access import ARGUMENT, Access, is_by_link
from distlab_dashboard.arguments import argument, keep_arguments, take_argument, take_bearer
from distlab_dashboard.hosts import Hosts
from distlab_dashboard.library import Library
from distlab_dashboard.page_handler import Page
from distlab_dashboard.page_socket import PageSocket
from distlab_dashboard.refusal import Reason, Refusal
from distlab_dashboard.visits import Visits

_METHODS: Final = ("GET", "HEAD")
_OWN_REQUESTS: Final = ("same-origin", "none")
"""Requests of the page itself, and addresses that somebody typed or opened from a bookmark."""

_AHEAD: Final = ("Sec-Purpose", "Purpose")
"""What browsers send with requests for what somebody may open, if a page of any site asks them to:
Chromium says of these that they come from no site."""

_PAGE: Final = ("", "/")
_WEB_SOCKET: Final = "/ws"
_NUL: Final = "%00"  # no file has it in its name, and Python's functions raise errors
_NO_LETTER: Final = "\ufffd"  # stands for what is no UTF-8
_MADE: Final = ("/export/", "/health", "/metrics")
_STATIC: Final = "/static/"
_STATIC_SUFFIXES: Final = {".css", ".ico", ".js", ".map", ".png", ".svg", ".ttf", ".woff", ".woff2"}
_RUNS: Final = ("run", "compare")
"""The arguments of the page."""

_SESSION: Final = "Bokeh-Session-Id"
_ICON: Final = "/favicon.ico"


class Gate(Router):
    """Passes on what may be answered, and refuses everything else in words."""

    def __init__(
        self, application: BokehTornado, hosts: Hosts, access: Access, library: Library
    ) -> None:
        self._application = application
        self._prefix = application.prefix
        self._hosts = hosts
        self._access = access
        self._library = library
        self._visits = Visits()
        self._note: Callable[[HTTPServerRequest], None] = lambda _: None

    def tell_passed(self, note: Callable[[HTTPServerRequest], None]) -> None:
        """Tells from now on of each request that is not refused."""
        self._note = note

    def find_handler(
        self,
        request: HTTPServerRequest,
        **kwargs: object,  # noqa: ARG002 - none are given
    ) -> HTTPMessageDelegate | None:
        """Returns what answers a request; tornado calls it when its headers have come."""
        path = self._path(request)
        # Refused requests are logged as well, and bodies that can't be parsed as warnings.
        given = take_argument(request, ARGUMENT) or take_bearer(request)
        request.headers.pop("Content-Type", None)
        return (
            self._check_host(request)
            or self._check_opened(request)
            or self._check_sender(request, path)
            or self._check_token(request, path, given)
            or self._check_path(request, path)
            or self._check_visit(request, path)
            or self._answer(request, path)
        )

    def _path(self, request: HTTPServerRequest) -> str | None:
        """Returns the path below the page's, None for others."""
        path = request.path
        if path == _ICON:
            return path
        return path[len(self._prefix) :] if path.startswith(self._prefix) else None

    def _check_host(self, request: HTTPServerRequest) -> HTTPMessageDelegate | None:
        header = request.headers.get("Host")
        if self._hosts.answers(header):
            return None
        text = (
            f"This server does not answer as {header or '(no host)':.200}. Open the address that "
            "it printed, or name the host of your proxy when you start it: --origin HOST."
        )
        return self._refuse(request, Reason(403, "Unknown host", text))

    def _check_opened(self, request: HTTPServerRequest) -> HTTPMessageDelegate | None:
        """Refuses what a browser loads in case that somebody will open it."""
        if not any("prefetch" in request.headers.get(name, "").lower() for name in _AHEAD):
            return None
        text = "This server answers when somebody opens its address, and not before."
        return self._refuse(request, Reason(403, "Not opened yet", text))

    def _check_sender(
        self, request: HTTPServerRequest, path: str | None
    ) -> HTTPMessageDelegate | None:
        """Refuses requests that pages of other sites make."""
        headers = request.headers
        origin, host = headers.get("Origin"), headers.get("Host")
        if origin is not None and not self._hosts.admits(origin, host):
            return self._refuse_page_of(request, origin)
        site = headers.get("Sec-Fetch-Site")
        if site in _OWN_REQUESTS or (origin is not None and self._hosts.are_named(origin)):
            return None
        if site is not None:
            if path in _PAGE and self._is_visit(request):
                return None
            return self._refuse_page_of(request, "another site")
        # Browsers leave both headers out where they take the connection for unsafe.
        referer = headers.get("Referer")
        if path in _PAGE or origin is not None or not referer:
            return None
        return None if self._hosts.admits(referer, host) else self._refuse_page_of(request, referer)

    def _is_visit(self, request: HTTPServerRequest) -> bool:
        """Returns whether somebody followed a link of another page; frames only of named hosts."""
        shown = request.headers.get("Sec-Fetch-Dest")
        wanted = {"document", "iframe"} if self._hosts.origins else {"document"}
        return request.headers.get("Sec-Fetch-Mode") == "navigate" and shown in wanted

    def _check_token(
        self, request: HTTPServerRequest, path: str | None, given: str | None
    ) -> HTTPMessageDelegate | None:
        """Refuses requests without token and cookie."""
        access = self._access
        if access.admits(request):
            return None
        if not given:
            return self._ask(request, path, "Open the whole address that the server printed.")
        wait = access.wait_seconds(request)
        if wait:
            text = f"This address presented many wrong tokens. Try again in {wait} s."
            return self._refuse(request, Reason(429, "Too many wrong tokens", text, wait))
        if not access.is_token(request, given):
            return self._ask(request, path, "That is not this server's token.")
        return None

    def _check_path(
        self, request: HTTPServerRequest, path: str | None
    ) -> HTTPMessageDelegate | None:
        """Refuses what the page does not need of Bokeh's application, and unknown runs."""
        if request.method not in _METHODS:
            return self._refuse(
                request, Reason(405, "Not possible", "This server is only read from.")
            )
        if (
            path is None
            or _NUL in path
            or not (
                path in _PAGE
                or path in {_ICON, _WEB_SOCKET}
                or path.startswith(_MADE)
                or _is_static(path)
            )
        ):
            return self._refuse(
                request, Reason(404, "Nothing here", "This server has no such page.")
            )
        if path not in _PAGE:
            return None
        for name in _RUNS:
            run = argument(request.query_arguments, name)
            if run is None:
                continue
            try:
                self._library.release(self._library.hold(run))
            except NotARunError as error:
                return self._refuse(request, Reason(404, "No such run", str(error)))
        return None

    def _check_visit(
        self, request: HTTPServerRequest, path: str | None
    ) -> HTTPMessageDelegate | None:
        """Answers many links of other sites with a link of this one, which only a person follows.

        A page that has opened the dashboard can navigate its window again and again, and each time
        a new session would be made.
        """
        if path != "/" or not is_by_link(request) or self._visits.admit():
            return None
        keep_arguments(request, _RUNS)
        text = "Other sites have opened this dashboard many times within a minute."
        cookie = self._access.cookie if self._access.required else None
        reason = Reason(200, "Do you want to see it?", text, opens=True, cookie=cookie)
        return self._refuse(request, reason)

    def _answer(self, request: HTTPServerRequest, path: str | None) -> HTTPMessageDelegate | None:
        self._note(request)
        application = self._application
        given: dict[str, object] = {
            "application_context": application.applications["/"],
            "bokeh_websocket_path": f"{self._prefix}{_WEB_SOCKET}",
        }
        if path == _WEB_SOCKET:
            return application.get_handler_delegate(request, PageSocket, given)
        if path not in _PAGE:
            return application.find_handler(request)
        # Bokeh would take a session from the address, or a header: each page begins its own.
        keep_arguments(request, _RUNS)
        request.headers.pop(_SESSION, None)
        given |= {"origins": self._hosts.origins, "access": self._access}
        return application.get_handler_delegate(request, Page, given)

    def _ask(self, request: HTTPServerRequest, path: str | None, text: str) -> HTTPMessageDelegate:
        asks = path in _PAGE
        text += " Or enter the token:" if asks else ""
        reason = Reason(401, "This dashboard needs its token", text, asks=asks)
        return self._refuse(request, reason)

    def _refuse_page_of(self, request: HTTPServerRequest, sender: str) -> HTTPMessageDelegate:
        text = (
            f"Pages of {_site(sender):.200} can't use this server. If a proxy serves the page "
            "there, name its host when you start the server: --origin HOST."
        )
        return self._refuse(request, Reason(403, "Not from there", text))

    def _refuse(self, request: HTTPServerRequest, reason: Reason) -> HTTPMessageDelegate:
        said = {"reason": reason, "origins": self._hosts.origins}
        return self._application.get_handler_delegate(request, Refusal, said)


def _is_static(path: str) -> bool:
    """Returns whether a path names a file to load, without steps out of its folder.

    Tornado refuses the others as well, with a line in the program's log for each.
    """
    name = unquote(path)
    return (
        name.startswith(_STATIC)
        and _NO_LETTER not in name
        and posixpath.normpath(name) == name
        and posixpath.splitext(name)[1] in _STATIC_SUFFIXES
    )


def _site(address: str) -> str:
    """Returns an origin, or that of a whole address."""
    try:
        return urlsplit(address).netloc or address
    except ValueError:
        return address

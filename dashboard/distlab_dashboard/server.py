"""Serving the dashboard from a thread of this process."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import secrets
import socket
import threading
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote

from bokeh.core.validation import silence
from bokeh.core.validation.warnings import EMPTY_LAYOUT
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from panel.io.application import build_applications
from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError
from tornado.log import access_log
from tornado.netutil import bind_sockets
from tornado.web import RequestHandler
from tornado.websocket import WebSocketClosedError

from distlab.errors import (
    ArgumentValueError,
    DistlabError,
    PortInUseError,
)
from distlab.text.printable import printable
from distlab_dashboard.access.arguments import TOKEN
from distlab_dashboard.access.connections import WebServer
from distlab_dashboard.access.gate import Gate
from distlab_dashboard.access.headers import SafeHeaders
from distlab_dashboard.access.hosts import (
    EVERYWHERE,
    Host,
    Hosts,
    checked_origins,
    checked_prefix,
)
from distlab_dashboard.access.messages import MOST_BYTES
from distlab_dashboard.access.token import Token, checked_token, checked_view_token
from distlab_dashboard.endpoints import Health, Metrics
from distlab_dashboard.exports import FILES, Export, Exports
from distlab_dashboard.library import Library, library_of
from distlab_dashboard.ports import PORTS, TAKEN, refusal
from distlab_dashboard.session import show

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_HANG_UP_SECONDS: Final = 0.1
_END_SECONDS: Final = 2.0
_PING_SECONDS: Final = 30
_FOREIGN: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of the system for an address of another machine."""

UNUSED_SECONDS: Final = 30
"""The time that a session stays without its page.

Scripts load slowly over a slow line, and a page without its session would ask a CDN for styles.
"""


class DashboardServer:
    """A dashboard that is being served; made by `serve`.

    Attributes:
      url: Address of the page.
      view_url: Address of the page for those who may only look; empty without a view token.
      port: The port that it listens on.

    Example:
      >>> import distlab as dl
      >>> import distlab_dashboard
      >>> dl.record("runs/first").close()
      >>> server = distlab_dashboard.serve("runs/first", port=0)
      >>> server.url == f"http://127.0.0.1:{server.port}/"
      True
      >>> server.stop()
    """

    def __init__(
        self,
        library: Library,
        address: str,
        prefix: str,
        origins: tuple[Host, ...],
        tokens: tuple[str, str],
    ) -> None:
        """Prepares to serve; `start` begins."""
        self.url = self.view_url = ""
        self.port = 0
        self._library = library
        self._address = address
        self._prefix = prefix
        self._origins = origins
        self._token, self._view_token = tokens
        self._exports = Exports(library)
        self._loop: IOLoop | None = None
        self._server: BaseServer | None = None
        self._http: WebServer | None = None
        self._ready = threading.Event()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._is_ending = False

    def start(self, port: int | None) -> None:
        """Begins to serve and returns when the port is open, or raises `PortInUseError`."""
        self._thread = threading.Thread(
            target=self._serve, args=(port,), name="distlab-dashboard", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise DistlabError(
                f"The dashboard did not start within {_START_SECONDS:.0f} s. "
                "The machine may be overloaded: try again, or train without it."
            )
        if self._error is not None:
            raise self._error
        self._library.start()

    def stop(self) -> None:
        """Stops serving, frees the port and stops reading. A second call has no effect."""
        self._stopping.set()
        try:
            self._exports.stop()
            if self._thread is not None and self._thread.is_alive():
                if self._loop is not None:  # else the thread has just begun, and ends by itself
                    self._loop.add_callback(self._shut_down)
                self._thread.join(_STOP_SECONDS)
        finally:
            self._library.stop()

    def _serve(self, port: int | None) -> None:
        try:
            # Each of them may need a file, and the process may have too many open.
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(_report)
            asyncio.set_event_loop(loop)
            self._loop = IOLoop.current()
            self._server = self._bind(port)
            self._server.start()
        except Exception as error:  # noqa: BLE001 - raised in the thread that called `start`
            self._error = self._explained(error)
            self._close_loop()
            self._ready.set()
            return
        self._ready.set()
        if self._stopping.is_set():  # `stop` may have looked before there was a loop
            self._loop.add_callback(self._shut_down)
        self._loop.start()
        self._close_loop()

    def _close_loop(self) -> None:
        if self._loop is not None:
            self._loop.close(all_fds=True)
            asyncio.set_event_loop(None)

    def _explained(self, error: Exception) -> Exception:
        """Returns the error to raise for what kept the server from listening."""
        unknown = isinstance(error, UnicodeError | socket.gaierror)
        if not unknown and getattr(error, "errno", None) not in _FOREIGN:
            return error
        return ArgumentValueError(
            f"The dashboard listens on an address of this machine, and {self._address!r} is "
            f"none ({error}). Use 127.0.0.1, or 0.0.0.0 for all of its addresses."
        )

    async def _shut_down(self) -> None:
        """Ends all that runs in the loop: what is left there would stay in memory for good."""
        if self._is_ending:
            return
        self._is_ending = True
        if self._server is not None:
            self._server.stop(wait=False)
            self._server = None
        if self._http is not None:
            self._http.hang_up()
        await self._end_tasks(_HANG_UP_SECONDS, cancel=False)  # most end with their connection
        await self._end_tasks(_END_SECONDS, cancel=True)
        if self._loop is not None:
            self._loop.stop()

    @staticmethod
    async def _end_tasks(seconds: float, *, cancel: bool) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            if cancel:
                task.cancel()
        if others:
            await asyncio.wait(others, timeout=seconds)

    def _bind(self, port: int | None) -> BaseServer:
        for number in PORTS if port is None else [port]:
            if why := refusal(self._address, number):
                continue
            try:
                return self._listen(number)
            except OSError as error:  # another program was quicker
                if error.errno not in TAKEN:
                    raise
                why = "is taken"
        raise PortInUseError(
            f"The dashboard needs a free port, and {self._address}:{port or PORTS[0]} {why}"
            + (f", like the {len(PORTS) - 1} after it. Stop what uses them." if port is None
               else ". Choose another one, or name none to get the first free one.")
        )  # fmt: skip

    def _listen(self, port: int) -> BaseServer:
        sockets = bind_sockets(port, address=self._address)
        self.port = port = sockets[0].getsockname()[1]
        page = (
            f"http://{_reachable(self._address)}:{port}/{self._prefix}{'/' if self._prefix else ''}"
        )
        self.url = page + (f"?{TOKEN}={quote(self._token)}" if self._token else "")
        self.view_url = f"{page}?{TOKEN}={quote(self._view_token)}" if self._view_token else ""
        application = self._application({"url": page, "version": version("distlab")})
        hosts = Hosts(self._address, port, self._origins)
        self._http = WebServer(
            Gate(application, hosts, Token(self._token, self._view_token, port), self._library)
        )
        self._http.add_sockets(sockets)
        assert self._loop is not None
        return BaseServer(self._loop, application, self._http)

    def _application(self, about: dict[str, str]) -> BokehTornado:
        """Returns Bokeh's web application, which the gate stands before."""
        # A page that is closed while it receives data is not worth a line.
        logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)
        silence(EMPTY_LAYOUT)  # charts come into their places when their page is opened
        exports = "|".join(re.escape(name) for name in FILES)
        return BokehTornado(
            # Panel's types leave out functions that fill the current document by themselves.
            build_applications(lambda: show(self._library), title="distlab"),  # type: ignore[arg-type]
            prefix=self._prefix,
            extra_patterns=[
                (r"/health", Health, {"library": self._library, "about": about}),
                (r"/metrics", Metrics, {"library": self._library}),
                (rf"/export/({exports})", Export, {"exports": self._exports}),
            ],
            # The gate knows which origins may connect, and how the page is reached.
            extra_websocket_origins=["*"],
            # The page's HTML has what Bokeh keeps of the request that opened it.
            include_headers=[],
            include_cookies=[],
            # Only a page opens a session: who connects shows what this process has signed.
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            # A reader that answers no ping has gone, though its connection may look open.
            keep_alive_milliseconds=0,
            websocket_ping_interval=_PING_SECONDS,
            websocket_max_message_size_bytes=MOST_BYTES,
            check_unused_sessions_milliseconds=2_000,
            unused_session_lifetime_milliseconds=UNUSED_SECONDS * 1_000,
            transforms=[SafeHeaders],
            log_function=_log,
        )


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors that nobody waited for, but those of readers that went away."""
    if not isinstance(context.get("exception"), StreamClosedError | WebSocketClosedError):
        loop.default_exception_handler(context)


def _log(handler: RequestHandler) -> None:
    """Logs an answer: as an error where it is this server's fault, else at level DEBUG."""
    status, request = handler.get_status(), handler.request
    level = logging.ERROR if status >= 500 and status != 503 else logging.DEBUG
    access_log.log(level, "%d %s", status, printable(f"{request.method} {request.uri}"))


def _reachable(address: str) -> str:
    """Returns the host to open, for an address to listen on."""
    if address in EVERYWHERE:
        return "[::1]" if address == "::" else "127.0.0.1"
    return f"[{address}]" if ":" in address else address


def serve(
    source: object,
    *,
    address: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
    prefix: str = "",
    origins: tuple[str, ...] = (),
    token: str | None = None,
    view_token: str | None = None,
) -> DashboardServer:
    """Serves the dashboard of a run, or of all runs in a folder, from a thread of its own.

    Args:
      source: A run's folder, a folder of runs, a recording in progress, or an object
        with `since`.
      address: Address to listen on. Everyone who can reach it and has the token sees the
        run.
      port: The port, 0 for any free one; None for the first free one from 5006.
      open_browser: Whether to open the page in the default browser.
      prefix: Path at which a proxy serves the page, such as `"dashboard"`.
      origins: Further hosts, as `host` or `host:port`, at which a proxy serves the page.
        The server answers at no others but this machine's own.
      token: Secret of at least 8 characters that a browser must present; it becomes part
        of the `url`. Required for addresses that others can reach.
      view_token: A second secret, for those who may look and not control: their pages, at
        `view_url`, have no buttons, and the server ignores what they send for one.

    Returns:
      The server, with its `url`; `stop()` ends it.

    Raises:
      ArgumentTypeError: `origins` is no sequence of str.
      ArgumentValueError: The address, the prefix or an origin can't exist, or the address can be
        reached by others and there is no token, or a token is too short, or there is a view
        token alone.
      PortInUseError: The port is taken, or may be used by root only.
      NotARunError: The folder does not hold a recorded run.
      InvalidArgumentError: Events cannot be read from the source, such as a recording without a
        folder, or while recording is off.

    Example:
      >>> from urllib.request import urlopen
      >>> import distlab as dl
      >>> import distlab_dashboard
      >>> with dl.record("runs/first") as recording:
      ...     server = distlab_dashboard.serve(recording, port=0)
      ...     with urlopen(server.url + "health") as answer:
      ...         answer.status
      ...     server.stop()
      200
    """
    secret, hosts = checked_token(address, token), checked_origins(origins)
    path = checked_prefix(prefix)
    view_secret = checked_view_token(secret, view_token)
    server = DashboardServer(library_of(source), address, path, hosts, (secret, view_secret))
    try:
        server.start(port)
    except BaseException:  # after Ctrl-C as well: nobody else could stop it
        server.stop()
        raise
    if open_browser:
        import webbrowser

        webbrowser.open(server.url)
    return server

"""Starting the dashboard's server, and serving until someone says stop."""

from __future__ import annotations

import importlib
import logging
import signal
import socket
import threading
from types import FrameType, ModuleType
from typing import Any, Protocol, cast

from distlab.errors import MissingExtraError, PortInUseError

HOST = "127.0.0.1"
LOOK_AGAIN_SECONDS = 1.0


class Server(Protocol):
    """A dashboard that is being served."""

    @property
    def url(self) -> str:
        """The address of its first page."""

    def stop(self) -> None:
        """Stops serving and frees the port."""


def prepare(port: int | None) -> None:
    """Finds out before any work is done whether `serve` can do its part.

    Args:
      port: the port that will be asked for; None for any.

    Raises:
      MissingExtraError: Panel or Bokeh is not installed.
      PortInUseError: the port is taken.
    """
    _dashboard()
    if port is not None and not port_is_free(port):
        raise PortInUseError(
            f"The dashboard needs a free port, and {HOST}:{port} is taken. "
            "Name another one with --port, or none to get the first free one."
        )


def serve(
    source: Any,
    *,
    port: int | None,
    open_browser: bool,
    address: str = HOST,
    prefix: str = "",
    token: str | None = None,
    origins: tuple[str, ...] = (),
) -> Server:
    """Serves the dashboard of a run.

    Args:
      source: the run's folder, finished or being written, or a recording of this
        process, which the page can then ask for captures.
      address: the address to listen on.
      prefix: path under which a proxy shows the page.
      token: what a browser must have to look.
      origins: further `host:port` under which browsers may come.
      port: the port; None for the first free one from 5006.
      open_browser: whether to open the page in the default browser.

    Raises:
      MissingExtraError: Panel or Bokeh is not installed.
      PortInUseError: the port asked for is taken.
      NotARunError: the folder does not hold a recorded run.
    """
    serve = _dashboard().serve
    # A page that is closed while it is being sent something is not worth a line.
    logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)
    server = serve(
        source,
        address=address,
        port=port,
        open_browser=open_browser,
        prefix=prefix,
        token=token,
        origins=origins,
    )
    return cast(Server, server)


def port_is_free(port: int) -> bool:
    """Tells whether a server could listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def wait_for_interrupt() -> None:
    """Returns when Ctrl-C is pressed or the process is asked to terminate.

    It installs its own handlers, because a process started in the background
    of a shell script has SIGINT ignored and could not be stopped politely.
    """
    stop = threading.Event()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        stop.set()

    before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not stop.wait(LOOK_AGAIN_SECONDS):
            pass
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _dashboard() -> ModuleType:
    try:
        return importlib.import_module("distlab_dashboard")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The dashboard needs packages that are not installed ({error.name}). "
            "Install them with: pip install 'distlab[dashboard]'"
        ) from error

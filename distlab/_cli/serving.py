"""Starts the dashboard's server, and waits until it is asked to stop."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from distlab.errors import PortInUseError
from distlab_dashboard.ports import refusal

if TYPE_CHECKING:
    from distlab_dashboard import DashboardServer

HOST: Final = "127.0.0.1"
TOKEN: Final = "DISTLAB_TOKEN"  # noqa: S105 - a name
VIEW_TOKEN: Final = "DISTLAB_VIEW_TOKEN"  # noqa: S105
"""The environment variables of tokens: other users of a machine see options, not these."""

_POLL_SECONDS: Final = 1.0


def prepare(port: int | None) -> None:
    """Checks before any work is done that `serve` can start."""
    from distlab_dashboard import serve  # noqa: F401 - raises where a package is missing
    from distlab_dashboard.access.token import checked_token, checked_view_token

    checked_view_token(checked_token(HOST, os.environ.get(TOKEN)), os.environ.get(VIEW_TOKEN))
    if port is not None and (why := refusal(HOST, port)):
        raise PortInUseError(
            f"The dashboard needs a free port, and {HOST}:{port} {why}. "
            "Choose another one with --port, or leave --port out for the first free one."
        )


def serve(
    source: object, *, token: str | None = None, view_token: str | None = None, **options: Any
) -> DashboardServer:
    """Serves the dashboard of a run, with the tokens of the environment where none is given."""
    from distlab_dashboard import serve

    token = os.environ.get(TOKEN) if token is None else token
    view_token = os.environ.get(VIEW_TOKEN) if view_token is None else view_token
    return serve(source, token=token, view_token=view_token, **options)


def announce(server: DashboardServer) -> None:
    """Prints the addresses of the page."""
    print(f"Dashboard: {server.url}", flush=True)
    if server.view_url:
        print(f"To look only: {server.view_url}", flush=True)


def empty_library(folder: Path) -> object:
    """Returns what a server shows of a folder in which no run is recorded yet."""
    from distlab_dashboard.library import Library

    return Library(folder)


def wait_for_interrupt() -> None:
    """Returns when Ctrl-C is pressed or the process receives SIGTERM.

    It installs its own handlers, because a process started in the background
    of a shell script ignores SIGINT and could not be stopped gracefully.
    """
    stop = threading.Event()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        stop.set()

    before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not stop.wait(_POLL_SECONDS):
            pass
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)

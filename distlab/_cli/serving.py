"""Starts the dashboard's server, and waits until it is asked to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol, cast

from distlab.errors import PortInUseError
from distlab_dashboard.ports import refusal

HOST: Final = "127.0.0.1"
TOKEN: Final = "DISTLAB_TOKEN"  # noqa: S105 - a name
"""The environment variable of the token: other users of a machine see options, not this."""

_POLL_SECONDS: Final = 1.0


class Server(Protocol):
    """A dashboard that is being served."""

    @property
    def url(self) -> str:
        """The address of its first page."""

    def stop(self) -> None:
        """Stops serving and frees the port."""


def prepare(port: int | None) -> None:
    """Checks before any work is done that `serve` can start."""
    _serve()
    from distlab_dashboard.access.token import checked_token

    checked_token(HOST, os.environ.get(TOKEN))
    if port is not None and (why := refusal(HOST, port)):
        raise PortInUseError(
            f"The dashboard needs a free port, and {HOST}:{port} {why}. "
            "Choose another one with --port, or leave --port out for the first free one."
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
    """Serves the dashboard of a run."""
    server = _serve()(
        source,
        address=address,
        port=port,
        open_browser=open_browser,
        prefix=prefix,
        token=os.environ.get(TOKEN) if token is None else token,
        origins=origins,
    )
    return cast(Server, server)


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


def _serve() -> Callable[..., object]:
    from distlab_dashboard import serve

    return serve

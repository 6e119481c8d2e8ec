"""Starting the dashboard's server, and serving until someone says stop."""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType
from typing import Any, Protocol, cast

from distlab.errors import MissingExtraError

LOOK_AGAIN_SECONDS = 1.0


class Server(Protocol):
    """A dashboard that is being served."""

    @property
    def url(self) -> str:
        """The address of its first page."""

    def stop(self) -> None:
        """Stops serving and frees the port."""


def serve(source: Any, *, port: int | None, open_browser: bool) -> Server:
    """Serves the dashboard of a run on 127.0.0.1.

    Args:
      source: a run that is being recorded, or the folder of one.
      port: the port; None for the first free one from 5006.
      open_browser: whether to open the page in the default browser.

    Raises:
      MissingExtraError: Panel or Bokeh is not installed.
      PortInUseError: the port asked for is taken.
      NotARunError: the folder does not hold a recorded run.
    """
    try:
        dashboard = importlib.import_module("distlab_dashboard")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The dashboard needs packages that are not installed ({error.name}). "
            "Install them with: pip install 'distlab[dashboard]'"
        ) from error
    return cast(Server, dashboard.serve(source, port=port, open_browser=open_browser))


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

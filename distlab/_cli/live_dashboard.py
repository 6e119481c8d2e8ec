"""The dashboard beside a command that runs something else: it begins with the first live run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from distlab._cli.serving import Server, serve
from distlab.errors import DistlabError
from distlab.runs.listing import run_folders
from distlab.runs.run_file import being_written, run_files

_LOOK_SECONDS: Final = 0.25


class LiveDashboard:
    """Serves a folder from the moment on at which a run is recorded in it, until it is closed.

    The folder need not exist yet. Port None is the first free one from 5006, 0 is any free
    one.
    """

    def __init__(self, folder: Path, port: int | None, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._port = port
        self._say = say
        self._server: Server | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="distlab dashboard", daemon=True)

    def __enter__(self) -> Self:
        """Begins to look for a run."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops serving."""
        self._stop.set()
        self._thread.join()
        if self._server is not None:
            self._server.stop()

    def _work(self) -> None:
        while not self._is_recorded():
            if self._stop.wait(_LOOK_SECONDS):
                return
        try:
            self._server = serve(self._folder, port=self._port, open_browser=False)
        except DistlabError as error:
            self._say(f"no dashboard: {error}")
        else:
            self._say(f"dashboard: {self._server.url}")

    def _is_recorded(self) -> bool:
        return any(
            being_written(file)
            for folder in run_folders(self._folder)
            for file in run_files(folder)
        )

"""The server that Binder would start, and its end without anything left over."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.binder.cost import Meter, command

BASE_URL = "/user/someone/"
START_SECONDS = 180.0
STOP_SECONDS = 30.0
_PAUSE_SECONDS = 0.2


class WaitedTooLongError(Exception):
    """Something that should have happened did not happen in time."""


def wait_until(what: str, done: Callable[[], bool], seconds: float) -> None:
    """Waits for a condition.

    Args:
      what: what is waited for, as the error says it.
      done: tells whether it is so.
      seconds: how long to wait at most.

    Raises:
      WaitedTooLongError: it was not so in time.
    """
    pause, end = threading.Event(), time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise WaitedTooLongError(f"Waited {seconds:.0f} s for {what}.")
        pause.wait(_PAUSE_SECONDS)


class Served:
    """JupyterLab as Binder starts it: by `binder/start`, with a token, under a prefix.

    Args:
      environment: the virtual environment that was built from `binder/`.
      home: the copy of the repository, which is the home folder on Binder.
    """

    def __init__(self, environment: Path, home: Path) -> None:
        self._environment = environment
        self._home = home
        self._token = secrets.token_hex(16)
        self._log = home.parent / "server.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])

    @property
    def log(self) -> str:
        """The output of the server and of all that it started."""
        return self._log.read_text(errors="replace")

    def url(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"http://127.0.0.1:{self._port}{BASE_URL}{path}?token={self._token}"

    def request(self, path: str, method: str = "GET") -> Any:
        """Returns the answer of an address, read as JSON."""
        asked = urllib.request.Request(self.url(path), method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def __enter__(self) -> Self:
        start = [
            str(self._home / "binder" / "start"), "jupyter", "lab", "--no-browser", "--allow-root",
            "--ip=127.0.0.1", f"--port={self._port}", "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={BASE_URL}", f"--IdentityProvider.token={self._token}",
            "--ServerApp.trust_xheaders=True", "--ServerApp.allow_origin=*",
        ]  # fmt: skip
        environment = {
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "PATH": f"{self._environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                start, env=environment, cwd=self._home, stdout=log, stderr=subprocess.STDOUT
            )
        self.meter = Meter(self._process.pid).__enter__()
        try:
            wait_until("JupyterLab to answer", self._is_up, START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise WaitedTooLongError(
                f"The server ended with code {self._process.returncode} before it answered."
            )
        try:
            self.request("api/status")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def __exit__(self, *error: object) -> None:
        """Ends the server, and what it started if that does not end by itself.

        Raises:
          WaitedTooLongError: something was left and had to be killed.
        """
        self._process.terminate()
        self.meter.__exit__()
        try:
            wait_until("the server to end", self._has_ended, STOP_SECONDS)
            wait_until("what the server started to end", lambda: not self._left(), STOP_SECONDS)
        except WaitedTooLongError as late:
            left = self._left()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise WaitedTooLongError(f"{late} Killed: {left}") from None

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _left(self) -> dict[int, str]:
        """Returns the processes that were seen and still run the same command."""
        return {pid: it for pid, it in self.meter.commands.items() if it and command(pid) == it}

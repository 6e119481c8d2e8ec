"""The launcher's side of the warden, which lets no process outlive the launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_SCRIPT = Path(__file__).with_name("warden_process.py")
_END_SECONDS = 10.0


class Warden:
    """Kills process groups when this process ends in any way, SIGKILL included."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )

    def watch(self, group: int) -> None:
        """Lets a process group end with this process."""
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Takes back `watch`, for a group that has ended."""
        self._say(f"-{group}\n")

    def close(self) -> None:
        """Ends the warden's process, which kills the groups that are still watched."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        # Without a warden the processes are still ended by the launcher itself.
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

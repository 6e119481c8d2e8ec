"""Programs as real processes, for the tests of what starts and ends them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

LIMIT_S = 120.0
"""How long a test waits for anything: a loaded machine is ten times as slow."""


def wait_for(condition: Callable[[], object], what: str = "it") -> None:
    pause, end = threading.Event(), time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true in time"
        pause.wait(0.02)


def is_gone(pid: int) -> bool:
    """Returns whether a process has ended, even if its new parent has not asked for its code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


class Launched:
    """A running `distlab launch`, with the lines it has printed so far; a block ends it."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distlab", "launch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))

    def _has_line(self, start: str) -> bool:
        return any(line.startswith(start) for line in [*self.lines])

    def wait_for_line(self, *starts: str) -> None:
        """Waits until lines with these beginnings were printed."""
        for start in starts:
            wait_for(partial(self._has_line, start), f"the line {start!r}")

    def numbers(self, word: str) -> list[int]:
        """Returns the number behind each line's word."""
        return [int(line.rpartition(word)[2]) for line in [*self.lines] if word in line]

    def end(self) -> int:
        """Waits for the end and returns the exit code."""
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end()

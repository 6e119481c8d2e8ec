"""Costs of processes, as Linux accounts them: memory of a tree of them, CPU time of one."""

from __future__ import annotations

import threading
from typing import Self

import psutil

MEGABYTE = 1_000_000
SAMPLE_SECONDS = 0.5


class OverBudgetError(Exception):
    """Binder gives less than what was used."""


def processes(root: int) -> dict[int, str]:
    """Returns a process and all that it started: number to command line."""
    try:
        parent = psutil.Process(root)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return {}
    return {one.pid: command(one.pid) for one in family}


def command(pid: int) -> str:
    """Returns a process's command line, empty when it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def memory(pid: int) -> float:
    """Returns the megabytes of a process, pages shared with others counted in part (PSS)."""
    try:
        return float(psutil.Process(pid).memory_full_info().pss) / MEGABYTE
    except psutil.Error:  # it has just ended
        return 0.0


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used since it started, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class Meter:
    """Follows the memory of a process and all that it starts, until the `with` block ends.

    Attributes:
      peak: megabytes of each process when all together had the most.
      now: megabytes of each process at the last look.
      commands: the command line of each process that was ever seen.
    """

    def __init__(self, root: int) -> None:
        self.peak: dict[int, float] = {}
        self.now: dict[int, float] = {}
        self.commands: dict[int, str] = {}
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            running = processes(self._root)
            self.commands |= running
            self.now = {pid: memory(pid) for pid in running}
            if sum(self.now.values()) > sum(self.peak.values()):
                self.peak = self.now


def check_budget(what: str, used: float, allowed: float, unit: str) -> None:
    """Raises `OverBudgetError` when more was used than is allowed, both in a unit."""
    if used > allowed:
        raise OverBudgetError(
            f"{what} may be at most {allowed:.0f} {unit}, and was {used:.0f} {unit}. See which "
            "part has grown in the figures above."
        )

"""Costs of processes, as Linux accounts them: memory of a tree of them, CPU time of one."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Self

MEGABYTE = 1_000_000
SAMPLE_SECONDS = 0.5
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class OverBudgetError(Exception):
    """Binder gives less than what was used."""


def processes(root: int) -> dict[int, str]:
    """Returns a process and all that it started: number to command line."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root} & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: command(pid) for pid in sorted(found)}


def command(pid: int) -> str:
    """Returns a process's command line, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def memory(pid: int) -> float:
    """Returns the megabytes of a process, pages shared with others counted in part (PSS)."""
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:  # it has just ended
        return 0.0
    return int(found[1]) * 1024 / MEGABYTE if found else 0.0


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used since it started, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


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
    """Raises when more was used than is allowed.

    Args:
      what: what was measured.
      used: how much it was.
      allowed: how much it may be.
      unit: of both.

    Raises:
      OverBudgetError: it is more.
    """
    if used > allowed:
        raise OverBudgetError(
            f"{what} may be at most {allowed:.0f} {unit}, and was {used:.0f} {unit}. See which "
            "part has grown in the figures above."
        )

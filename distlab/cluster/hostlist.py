"""Slurm's short forms for lists of nodes and of task counts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from distlab.errors import ClusterSpecError

_ENTRY = r"(?:[^][,]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_LIST = re.compile(rf"{_ENTRY}(?:,{_ENTRY})*,?")  # Slurm accepts a comma at the end
_PIECE = re.compile(r"\[([^][]*)\]|([^][]+)")
_TASKS = re.compile(r"(\d+)(?:\(x([1-9]\d*)\))?", re.ASCII)


def expand_hostlist(hostlist: str) -> list[str]:
    """Expands a Slurm hostlist, in its order.

    A range counts with at least as many digits as its first number. Brackets may
    occur anywhere and more than once (`"rack[0-1]n[1-4]"`); the last one counts
    fastest.
    """
    if not _LIST.fullmatch(hostlist):
        raise ClusterSpecError(
            f'A hostlist has a form such as "n[1-2],m5,o[08-10]", got {hostlist!r}.'
        )
    return [host for entry in re.findall(_ENTRY, hostlist) for host in _expand_entry(entry)]


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """Expands Slurm's task counts."""
    counts: list[int] = []
    for entry in tasks_per_node.split(","):
        match = _TASKS.fullmatch(entry)
        if match is None:
            raise ClusterSpecError(
                f'Tasks per node have a form such as "3(x2),2", got {tasks_per_node!r}.'
            )
        counts.extend([int(match[1])] * int(match[2] or 1))
    return counts


def in_slurms_order(host: str) -> list[tuple[int, str]]:
    """Returns a key that sorts node names as Slurm does: `n9` before `n10`.

    Slurm numbers its tasks over the nodes in this order, numbers compared by
    their count of digits first (`scontrol show hostlistsorted`).
    """
    texts_and_numbers = re.split(r"(\d+)", host)
    return [(len(t) if i % 2 else 0, t) for i, t in enumerate(texts_and_numbers)]


def _expand_entry(entry: str) -> Iterator[str]:
    pieces = [
        [text] if text else list(_expand_brackets(ranges)) for ranges, text in _PIECE.findall(entry)
    ]
    return map("".join, itertools.product(*pieces))


def _expand_brackets(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))

"""Slurm's short forms for lists of nodes and of task counts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from distlab.errors import ClusterSpecError

MAX_NODES = 1 << 16
"""The longest list that is expanded, which is Slurm's own limit for a range."""

_ENTRY = re.compile(r"(?:[^][,]|\[[^][]*\])+")
_PIECE = re.compile(r"\[([^][]*)\]|([^][]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)


def expand_hostlist(hostlist: str) -> list[str]:
    """Expands a Slurm hostlist, in its order.

    A range counts with at least as many digits as its first number. Brackets may
    occur anywhere and more than once (`"rack[0-1]n[1-4]"`); the last one counts
    fastest.
    """
    try:
        hosts = [host for entry in _entries(hostlist) for host in _expand_entry(entry)]
    except ValueError as error:
        raise ClusterSpecError(
            f'A hostlist has a form such as "n[1-2],m5,o[08-10]", got {hostlist!r}: {error}.'
        ) from error
    if len(hosts) > MAX_NODES:
        raise ClusterSpecError(f"A hostlist may name {MAX_NODES:,} nodes, got {len(hosts):,}.")
    return hosts


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """Expands Slurm's task counts."""
    counts: list[int] = []
    for entry in tasks_per_node.split(","):
        match = _TASKS.fullmatch(entry)
        times = int(match[2] or 1) if match else 0
        if match is None or not 1 <= times <= MAX_NODES:
            raise ClusterSpecError(
                f'Tasks per node have a form such as "3(x2),2", got {tasks_per_node!r}.'
            )
        counts.extend([int(match[1])] * times)
    return counts


def in_slurms_order(host: str) -> list[tuple[int, str]]:
    """Returns a key that sorts node names as Slurm does: `n9` before `n10`.

    Slurm numbers its tasks over the nodes in this order, numbers compared by
    their count of digits first (`scontrol show hostlistsorted`).
    """
    texts_and_numbers = re.split(r"(\d+)", host)
    return [(len(t) if i % 2 else 0, t) for i, t in enumerate(texts_and_numbers)]


def _entries(hostlist: str) -> Iterator[str]:
    # Commas inside of brackets belong to their entry.
    position = 0
    while position < len(hostlist) or position == 0:
        entry = _ENTRY.match(hostlist, position)
        if entry is None:
            raise ValueError(f"no node name at character {position}")
        yield entry[0]
        position = entry.end()
        if position < len(hostlist):
            if hostlist[position] != ",":
                raise ValueError(f"an unmatched bracket at character {position}")
            position += 1  # Slurm and TensorFlow accept a comma at the end


def _expand_entry(entry: str) -> Iterator[str]:
    pieces = [
        [text] if text else _expand_brackets(ranges) for ranges, text in _PIECE.findall(entry)
    ]
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > MAX_NODES:
        raise ValueError(f"{entry} names {count:,} nodes, more than {MAX_NODES:,}")
    return map("".join, itertools.product(*pieces))


def _expand_brackets(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is neither a number nor a range such as 08-10")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MAX_NODES:
            raise ValueError(f"the range {part} must go up, and over at most {MAX_NODES:,} nodes")
        numbers.extend(str(number).zfill(len(match[1])) for number in range(first, last + 1))
    return numbers

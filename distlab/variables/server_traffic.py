"""Counts of the values that a worker reads from and changes on each parameter server.

A value's version is the number of changes that were made to it. A worker that changes what it
read knows the version that it read, and learns how many changes others made meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeAlias, final

from distlab.variables.protocol import StoredVariable
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.storage import Storage

Figures: TypeAlias = dict[int, tuple[int, ...]]
"""The figures of each server, in the order of `Link`'s fields."""


@dataclass(slots=True)
class Link:
    """The figures of one worker and one server.

    `used` counts changes of values that the same function had read, `behind` the changes of others
    since those reads. Messages are counted where the server is another process.
    """

    reads: int = 0
    read_bytes: int = 0
    changes: int = 0
    change_bytes: int = 0
    used: int = 0
    behind: int = 0
    most_behind: int = 0
    read_messages: int = 0
    change_messages: int = 0

    def add(self, figures: tuple[int, ...]) -> None:
        """Adds the figures of another period."""
        behind = max(self.most_behind, figures[6])
        for field, figure in zip(self.__slots__, figures, strict=True):
            setattr(self, field, getattr(self, field) + figure)
        self.most_behind = behind


@final
class WorkerTraffic:
    """The reads and changes of one worker, whose thread calls it."""

    def __init__(self) -> None:
        self._links: dict[int, Link] = {}
        self._seen: dict[Hashable, int] = {}

    def read_all(
        self, server: int, values: Sequence[Hashable], versions: Sequence[int], size: int
    ) -> None:
        """Counts values that were received together."""
        link = self._link(server)
        link.reads += len(values)
        link.read_bytes += size
        self._seen.update(zip(values, versions, strict=True))

    def changed_all(
        self, server: int, values: Sequence[Hashable], before: Sequence[int], size: int
    ) -> None:
        """Counts changes that were sent together."""
        link = self._link(server)
        link.changes += len(values)
        link.change_bytes += size
        for value, version in zip(values, before, strict=True):
            seen = self._seen.get(value)
            if seen is None:
                continue
            behind = version - seen
            link.used += 1
            link.behind += behind
            link.most_behind = max(link.most_behind, behind)
            self._seen[value] = seen + 1  # its own changes do not count

    def read_sent(self, server: int) -> None:
        """Counts a message that asks a server for values."""
        self._link(server).read_messages += 1

    def change_sent(self, server: int) -> None:
        """Counts a message that takes changes to a server."""
        self._link(server).change_messages += 1

    def take(self) -> Figures:
        """Ends a function, and returns the figures since the last call."""
        links, self._links = self._links, {}
        self._seen.clear()
        return {server: astuple(link) for server, link in links.items()}

    def _link(self, server: int) -> Link:
        link = self._links.get(server)
        if link is None:
            link = self._links[server] = Link()
        return link


of_this_thread: Final[ContextVar[WorkerTraffic | None]] = ContextVar(
    "distlab_server_traffic", default=None
)
"""The counts of the worker that the calling thread is; None outside of workers that are threads.
A new thread has none."""


def note_read(storage: Storage | RemoteStorage) -> None:
    """Counts a read of a variable that lies on a parameter server in this process."""
    traffic = of_this_thread.get()
    if traffic is None or isinstance(storage, RemoteStorage):
        return
    server = storage.layout.server
    if server is not None:
        traffic.read_all(server, (storage,), (storage.version,), storage.nbytes)


def note_change(storage: Storage, *operands: Any) -> None:
    """Counts a change of a variable that lies on a parameter server in this process."""
    server = storage.layout.server
    if server is None:
        return
    traffic = of_this_thread.get()
    if traffic is not None:
        size = sum(operand.nbytes for operand in operands)
        traffic.changed_all(server, (storage,), (storage.version,), size)
    storage.version += 1


def note_step(read: Iterable[StoredVariable], written: Iterable[StoredVariable]) -> None:
    """Counts what a compiled step read, and the new values that it computed."""
    for variable in read:
        note_read(variable.storage)
    for variable in written:
        if isinstance(variable.storage, Storage):
            note_change(variable.storage, variable.storage)

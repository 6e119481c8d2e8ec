"""The workers of a cluster: the place of each, and the worker that a thread runs as."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias, final

import jax

from distlab.step.programs.place import Place

Workers: TypeAlias = "ThreadWorkers | RemoteWorkers"
"""The workers of one strategy."""


class _Identity(NamedTuple):
    workers: Workers
    number: int


_identity: ContextVar[_Identity | None] = ContextVar("distlab_worker", default=None)


def current_worker() -> int | None:
    """Returns the number of the calling thread's worker; None outside of any worker."""
    identity = _identity.get()
    return None if identity is None else identity.number


@final
class ThreadWorkers:
    """Workers that are threads of this process."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = tuple(places)

    def __len__(self) -> int:
        """Returns the number of workers."""
        return len(self._places)

    @property
    def place(self) -> Place:
        """The place of the calling thread's worker; outside of any worker, the first place."""
        return self._places[self.current or 0]

    @property
    def current(self) -> int | None:
        """The number of the calling thread's worker; None outside of these workers."""
        identity = _identity.get()
        return None if identity is None or identity.workers is not self else identity.number

    @contextlib.contextmanager
    def acting_as(self, number: int) -> Iterator[None]:
        """Makes the calling thread run as a worker, with its device as JAX's default."""
        token = _identity.set(_Identity(self, number))
        try:
            with jax.default_device(self._places[number].mesh.local_devices[0]):
                yield
        finally:
            _identity.reset(token)


@final
class RemoteWorkers:
    """Workers that are processes; `own` is the number of this one, None in the coordinator."""

    def __init__(self, place: Place, count: int, own: int | None = None) -> None:
        self._place = place
        self._count = count
        self._own = own

    def __len__(self) -> int:
        """Returns the number of workers."""
        return self._count

    @property
    def place(self) -> Place:
        """The place of what runs in this process."""
        return self._place

    @property
    def current(self) -> int | None:
        """The number of this process's worker; None in the coordinator."""
        return self._own

    @contextlib.contextmanager
    def acting_as(self, number: int) -> Iterator[None]:
        """Makes the calling thread run as the worker that this process is."""
        token = _identity.set(_Identity(self, number))
        try:
            yield
        finally:
            _identity.reset(token)

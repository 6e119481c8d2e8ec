"""The workers of a cluster: where each one's replicas run, and which one a thread is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple, Protocol, final

import jax

from distlab.step.place import Place


class Workers(Protocol):
    """The workers of one strategy, wherever they run."""

    def __len__(self) -> int:
        """Returns how many workers there are."""

    @property
    def place(self) -> Place:
        """The place of the worker that the calling thread is; elsewhere the first one."""

    def acting_as(self, number: int) -> AbstractContextManager[None]:
        """Returns a context manager in which the calling thread is a worker."""


class _Identity(NamedTuple):
    workers: Workers
    number: int


_identity: ContextVar[_Identity | None] = ContextVar("distlab_worker", default=None)


def current_worker() -> int | None:
    """Returns the number of the worker that the calling thread is, None when it is no worker."""
    identity = _identity.get()
    return None if identity is None else identity.number


@final
class ThreadWorkers:
    """Workers that are threads of this process.

    Args:
      places: Where each worker's replicas run.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = tuple(places)

    def __len__(self) -> int:
        """Returns how many workers there are."""
        return len(self._places)

    @property
    def place(self) -> Place:
        """The place of the worker that the calling thread is; elsewhere the first one."""
        identity = _identity.get()
        mine = identity is not None and identity.workers is self
        return self._places[identity.number if identity is not None and mine else 0]

    @contextlib.contextmanager
    def acting_as(self, number: int) -> Iterator[None]:
        """Makes the calling thread a worker, with its device as JAX's default one."""
        token = _identity.set(_Identity(self, number))
        try:
            with jax.default_device(self._places[number].mesh.local_devices[0]):
                yield
        finally:
            _identity.reset(token)

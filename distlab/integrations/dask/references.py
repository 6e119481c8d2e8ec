"""What a pickle of another process refers to, found in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, final
from weakref import WeakValueDictionary

import jax
import numpy as np

from distlab.errors import ContextError

if TYPE_CHECKING:
    from distlab.variables.remote_storage import Key


class Session(Protocol):
    """What a process has of a session: the coordinator's, or a worker's."""

    @property
    def strategy(self) -> Any:
        """The strategy."""

    def variable(self, key: Key, about: dict[str, Any]) -> Any:
        """Returns the variable for a value on a parameter server."""

    def resource(self, number: int) -> Any:
        """Returns a per-worker dataset or iterator."""


sessions: Final[WeakValueDictionary[str, Session]] = WeakValueDictionary()
"""The sessions of this process, by name: a coordinator's ends with its strategy."""

_as_numpy: ContextVar[bool] = ContextVar("distlab_arrays_as_numpy", default=False)


def variable(session: str, key: Key, about: dict[str, Any]) -> Any:
    """Returns this process's variable for a value on a parameter server."""
    return sessions[session].variable(key, about)


def strategy(session: str) -> Any:
    """Returns this process's strategy for that of the coordinator."""
    return sessions[session].strategy


def resource(session: str, number: int) -> Any:
    """Returns this worker's dataset or iterator."""
    return sessions[session].resource(number)


def array(value: np.ndarray) -> Any:
    """Returns a JAX array; with `arrays_as_numpy` the NumPy array, or a number of its type."""
    return value[()] if _as_numpy.get() else jax.device_put(value)


def key(data: np.ndarray, kind: str) -> jax.Array:
    """Returns a random key."""
    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=kind)


@contextlib.contextmanager
def arrays_as_numpy() -> Iterator[None]:
    """Loads JAX arrays as NumPy arrays, for a block of code."""
    token = _as_numpy.set(True)
    try:
        yield
    finally:
        _as_numpy.reset(token)


@final
class CoordinatorsOwn:
    """Stands in a worker for an object that only the coordinator has.

    Args:
      what: The object, as text.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        """Refuses to be used."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise ContextError(
            f"A function that a worker runs used {name} of {self._what}, which lives in the "
            "coordinator's process. Use it there, and pass results as arguments."
        )

    def __repr__(self) -> str:
        """Shows the object's text."""
        return f"<{self._what}, in the coordinator>"

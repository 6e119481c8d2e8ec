"""Closures, arguments and results as bytes; references to what each process has of its own.

Variables, the strategy and per-worker datasets are pickled by their numbers, and a process that
loads them finds its own objects for these.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, NoReturn, TypeAlias, final
from weakref import WeakValueDictionary

import cloudpickle
import jax
import numpy as np

from distlab.coordinator.cluster_coordinator import ClusterCoordinator
from distlab.coordinator.per_worker import PerWorkerMade
from distlab.errors import ArgumentTypeError, ContextError
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.text.shown import shown
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.variable import Variable, description

Frames: TypeAlias = list[pickle.PickleBuffer]
"""A pickle and the buffers that it refers to, which Dask sends without a copy."""

_PROTOCOL: Final = 5
_NOT_PICKLED: Final = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)


sessions: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
"""The sessions of this process, by name: a coordinator's ends with its strategy."""


@final
class CoordinatorsOwn:
    """Stand-in, in a worker, for an object that only the coordinator has."""

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


@final
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickler that replaces objects of one process by references."""

    def __init__(
        self, session: str, file: io.BytesIO, buffers: list[Any], recipes: dict[int, Frames]
    ) -> None:
        def keep(buffer: pickle.PickleBuffer) -> None:
            memory = buffer.raw()  # the program may write to it before it is sent
            buffers.append(buffer if memory.readonly else pickle.PickleBuffer(bytes(memory)))

        super().__init__(file, protocol=_PROTOCOL, buffer_callback=keep)
        self._session = session
        self._recipes = recipes

    def reducer_override(self, obj: Any) -> Any:
        """Returns how to load an object in another process."""
        match obj:
            case Variable(storage=RemoteStorage() as storage):
                return _variable, (self._session, storage.key, description(obj))
            case ParameterServerStrategy():
                return _strategy, (self._session,)
            case PerWorkerMade():
                if obj.number not in self._recipes:
                    what = "A per-worker dataset"
                    frames = pickled(self._session, what, obj.recipe, self._recipes)
                    self._recipes[obj.number] = frames
                return _kept, (self._session, obj.number)
            case jax.Array() if not isinstance(obj, jax.core.Tracer):
                return _array_parts(obj)
            case ClusterCoordinator():
                return CoordinatorsOwn, (repr(obj),)
        return super().reducer_override(obj)


def pickled(session: str, what: str, value: Any, recipes: dict[int, Frames]) -> Frames:
    """Returns an object as bytes; adds the recipes of the datasets that it refers to."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    try:
        _Pickler(session, file, buffers, recipes).dump(value)
    except _NOT_PICKLED as error:
        raise ArgumentTypeError(
            f"{what} travels to another process, so all that it refers to must be picklable, and "
            f"something is not: {shown(str(error), 400)}. Make locks, files, generators and the "
            "like inside of the function."
        ) from error
    return [pickle.PickleBuffer(file.getvalue()), *buffers]


def loaded(frames: Frames) -> Any:
    """Returns the object that was pickled."""
    return pickle.loads(frames[0], buffers=frames[1:])  # noqa: S301 - of the same session


def _variable(session: str, key: Key, about: dict[str, Any]) -> Any:
    return sessions[session].variable(key, about)


def _strategy(session: str) -> Any:
    return sessions[session].strategy


def _kept(session: str, number: int) -> Any:
    return sessions[session].kept(number)


def _array_parts(array: jax.Array) -> Any:
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        data, kind = jax.random.key_data(array), str(jax.random.key_impl(array))
        return _key, (np.asarray(data), kind)
    return _array, (np.asarray(array),)


def _array(value: np.ndarray) -> jax.Array:
    return jax.device_put(value)


def _key(data: np.ndarray, kind: str) -> jax.Array:
    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=kind)

"""Closures as bytes: what lives in one process only travels as a reference.

Variables, the strategy and per-worker datasets are pickled by their numbers, and a worker that
loads them finds its own objects for these (`references`).
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, final

import cloudpickle
import jax
import numpy as np

from distlab.coordinator.cluster_coordinator import ClusterCoordinator
from distlab.coordinator.remote_datasets import RemoteDataset, RemoteIterator, RemoteVariable
from distlab.errors import ArgumentTypeError
from distlab.integrations.dask import references
from distlab.integrations.dask.messages import Frames
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.text.shown import shown
from distlab.variables.per_worker import PerWorkerVariable
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.variable import Variable, description

_PROTOCOL: Final = 5
_NOT_PICKLED: Final = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)


@final
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Notes which datasets, iterators and per-worker variables the object refers to.

    Args:
      session: The session's name.
      file: Receives the pickle.
      buffers: Receives the buffers.
      needed: Receives them.
    """

    def __init__(
        self, session: str, file: io.BytesIO, buffers: list[Any], needed: list[Any]
    ) -> None:
        super().__init__(file, protocol=_PROTOCOL, buffer_callback=buffers.append)
        self._session = session
        self._needed = needed

    def reducer_override(self, obj: Any) -> Any:
        """Returns how to load an object in another process."""
        match obj:
            case Variable(storage=RemoteStorage() as storage):
                about = (self._session, storage.key, description(obj))
                return references.variable, about
            case ParameterServerStrategy():
                return references.strategy, (self._session,)
            case RemoteDataset() | RemoteIterator() | PerWorkerVariable(elsewhere=RemoteVariable()):
                resource = obj.elsewhere if isinstance(obj, PerWorkerVariable) else obj
                self._needed.append(resource)
                return references.resource, (self._session, resource.number)
            case jax.Array() if not isinstance(obj, jax.core.Tracer):
                return _array(obj)
            case ClusterCoordinator():
                return references.CoordinatorsOwn, (repr(obj),)
        return super().reducer_override(obj)


def _array(array: jax.Array) -> Any:
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        data, kind = jax.random.key_data(array), str(jax.random.key_impl(array))
        return references.key, (np.asarray(data), kind)
    return references.array, (np.asarray(array),)


def pickled(session: str, what: str, value: Any) -> tuple[Frames, list[Any]]:
    """Returns an object as bytes, and the datasets and iterators that it refers to."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    needed: list[Any] = []
    try:
        _Pickler(session, file, buffers, needed).dump(value)
    except _NOT_PICKLED as error:
        raise ArgumentTypeError(
            f"{what} travels to another process, so all that it refers to must be picklable, and "
            f"something is not: {shown(str(error), 400)}. Make locks, files, generators and the "
            "like inside of the function."
        ) from error
    return [file.getvalue(), *(buffer.raw() for buffer in buffers)], needed


def loaded(frames: Frames) -> Any:
    """Returns the object that was pickled."""
    return pickle.loads(frames[0], buffers=frames[1:])  # noqa: S301 - of the same session

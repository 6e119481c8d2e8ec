"""The few facts about JAX that it has no public name for, each behind one of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import jax
import numpy as np
from jax._src import core as _core
from jax._src import profiler as _profiler
from jax._src import xla_bridge as _xla_bridge
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla as _pxla
from jax._src.interpreters.partial_eval import DynamicJaxprTrace as _DynamicJaxprTrace
from jax._src.lib import _profiler as _profiler_library
from jax.sharding import NamedSharding

ConcreteArray = ArrayImpl
"""The class of arrays that hold numbers; `jax.Array` is one of tracers, too."""


def backend_started() -> bool:
    """Says whether JAX has started its devices (settings for them come too late then)."""
    return bool(_xla_bridge.backends_are_initialized())


def uncommitted(array: Any) -> Any:
    """Returns a single-device array that mixes with arrays on other devices.

    JAX refuses to compute with arrays that were put on different devices, where
    TensorFlow copies. An array that is on its device without having been put
    there may be copied.
    """
    if type(array) is not ArrayImpl or len(array.sharding.device_set) > 1:
        return array
    return ArrayImpl(array.aval, array.sharding, [array], committed=False)


def key_impl(dtype: Any) -> str:
    """Returns the name of the generator that keys of this element type belong to."""
    return str(dtype._impl.name)


def plain(array: Any) -> Any:
    """Returns the numbers behind an array of random keys; any other array as it is."""
    return getattr(array, "_base_array", array)


def current_trace() -> object:
    """Returns what takes the operations of this thread at present; one object for each level."""
    return _core.trace_ctx.trace


def being_staged() -> bool:
    """Says whether operations in this thread go into a program (jit) and not to a device."""
    return isinstance(_core.trace_ctx.trace, _DynamicJaxprTrace)


def being_transformed() -> bool:
    """Says whether a JAX transformation (jit, grad, vmap, scan) is running in this thread."""
    return not isinstance(_core.trace_ctx.trace, _core.EvalTrace)


def pieces(array: jax.Array) -> list[jax.Array]:
    """Returns an array's part on each of its devices, in the order of the devices.

    `addressable_shards` gives the same, 200 times slower.

    Raises:
      RuntimeError: the array was deleted (donated), as JAX raises it.
    """
    held = cast(ArrayImpl, array)._arrays
    if held is None:
        raise RuntimeError("Array has been deleted.")
    return list(held)


def is_ready(array: jax.Array) -> bool:
    """Says whether an array has been computed; it must not be deleted.

    JAX's arrays have the method, its declared type does not.
    """
    declared: Any = array
    return bool(declared.is_ready())


def devices_of(array: jax.Array) -> list[jax.Device]:
    """Returns the devices of an array, deleted or not, in the order of its pieces."""
    sharding: Any = array.sharding
    return list(sharding._device_assignment)


def put_rows(
    rows: Sequence[Any] | np.ndarray, sharding: NamedSharding, devices: Sequence[jax.Device]
) -> jax.Array:
    """Puts one row on each device.

    `make_array_from_callback` does the same in nearly twice the time: it wraps
    and looks at each row in Python.

    Args:
      rows: arrays of one shape and dtype. JAX may go on using their memory.
      sharding: divides the first axis of the result over the devices.
      devices: the sharding's devices in this process, in the order of the rows.

    Returns:
      An array `(replicas, ...)`, with a row for each device of the sharding.
    """
    dtype = jax.dtypes.canonicalize_dtype(rows[0].dtype)
    pieces = [row[np.newaxis].astype(dtype, copy=False) for row in rows]
    aval = _core.ShapedArray((sharding.mesh.size, *rows[0].shape), dtype)
    return cast(jax.Array, _pxla.batched_device_put(aval, sharding, pieces, list(devices)))


@contextmanager
def profiler_reserved() -> Iterator[bool]:
    """Keeps JAX's one profiler from being started by others, who wait meanwhile.

    JAX refuses to start a second profile. Whoever calls `jax.profiler.start_trace`
    while this is held waits for it to be given back instead, and then succeeds.

    Yields:
      Whether the profiler is free: false while the user is taking a profile.
    """
    state = _profiler._profile_state
    if not state.lock.acquire(blocking=False):
        yield False
        return
    try:
        yield state.profile_session is None
    finally:
        state.lock.release()


def free_profiler_after_fork() -> None:
    """Gives the profiler back in a forked child, where its holder does not live on."""
    state = _profiler._profile_state
    if state.lock.locked():
        state.lock.release()


def start_profile(options: Any) -> Any:
    """Starts a profile in memory; `stop()` of what is returned gives it as bytes.

    `jax.profiler` only writes profiles to files.

    Args:
      options: `jax.profiler.ProfileOptions`.
    """
    return _profiler_library.ProfilerSession(options)

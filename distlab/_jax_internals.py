"""The few facts about JAX that it has no public name for, each behind one of ours."""

from __future__ import annotations

from typing import Any, cast

import jax
from jax._src import core as _core
from jax._src import xla_bridge as _xla_bridge
from jax._src.array import ArrayImpl
from jax._src.interpreters.partial_eval import DynamicJaxprTrace as _DynamicJaxprTrace

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


def current_trace() -> object:
    """Returns what takes the operations of this thread at present; one object for each level."""
    return _core.trace_ctx.trace


def being_staged() -> bool:
    """Says whether operations in this thread go into a program (jit) and not to a device."""
    return isinstance(_core.trace_ctx.trace, _DynamicJaxprTrace)


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


def devices_of(array: jax.Array) -> list[jax.Device]:
    """Returns the devices of an array, deleted or not, in the order of its pieces."""
    sharding: Any = array.sharding
    return list(sharding._device_assignment)

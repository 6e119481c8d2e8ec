"""The first value of a variable of several workers: the chief's, on all of them."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.combining import sums_of_rows
from distlab.devices.jax_internals import plain
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import StructureError
from distlab.processes import group

_LEAST_SENT_BY_DEVICES: Final = 1 << 16
"""Larger values go from device to device; the key-value store is for small ones."""


def chiefs_value(value: jax.Array, name: str, mesh: ReplicaMesh) -> jax.Array:
    """Returns the value that the chief passes, as TensorFlow does. All processes call it."""
    processes = group.current()
    if processes is None:
        return value
    by_devices = value.nbytes >= _LEAST_SENT_BY_DEVICES
    kind = [str(value.dtype), list(value.shape)]
    data = plain(value)
    text = None
    if processes.is_chief:
        held = None if by_devices else base64.b64encode(np.asarray(data).tobytes()).decode()
        text = json.dumps([name, kind, held])
    named, known, sent = json.loads(processes.from_chief("variables", text))
    if known != kind:
        raise StructureError(
            f"All workers must make the same variables in the same order, but the chief makes "
            f"{named} as {known[0]}{known[1]}, and {processes.worker.name} makes {name} as "
            f"{kind[0]}{kind[1]}. Make it with the same shape and dtype on each."
        )
    if by_devices:
        data = _through_devices(data, mesh, is_chief=processes.is_chief)
    elif not processes.is_chief:
        host = np.frombuffer(base64.b64decode(sent), np.asarray(data).dtype)
        data = jnp.asarray(host.reshape(data.shape))
    if plain(value) is value:
        return data
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))


def _through_devices(value: jax.Array, mesh: ReplicaMesh, *, is_chief: bool) -> jax.Array:
    """Returns the chief's bits, by one sum of whole numbers in which all others are zero."""
    bits: Any = np.asarray(value)
    kind = bits.dtype
    words = np.ascontiguousarray(bits).reshape(-1).view(np.uint8)
    zeros = np.zeros_like(words)
    placed = [
        jax.device_put((words if is_chief and n == 0 else zeros)[None], device)
        for n, device in enumerate(mesh.local_devices)
    ]
    stacked = jax.make_array_from_single_device_arrays(
        (mesh.replicas, words.size), mesh.split, placed
    )
    (total,) = sums_of_rows([stacked], mesh)
    return jnp.asarray(np.asarray(total).view(kind).reshape(bits.shape))

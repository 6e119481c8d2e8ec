"""Layers that see more than their replica: batch statistics, and random numbers."""

from __future__ import annotations

import math
from typing import Any, Final

import jax.numpy as jnp
from keras.src.backend import epsilon
from keras.src.backend.jax import nn, numpy
from keras.src.layers.normalization.batch_normalization import BatchNormalization
from keras.src.random.seed_generator import SeedGenerator

from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import is_empty, replica, weighs_examples

_GOLDEN: Final = 0x9E3779B9


def patch_layers() -> None:
    """Lets batch statistics span the replicas, and gives each replica its own random numbers."""
    _patch_statistics()
    _patch_gathers()
    _patch_random_numbers()


def _patch_statistics() -> None:
    @patch(nn, "moments")
    def moments(
        old: Function, x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False
    ) -> Any:
        context = replica() if synchronized else None
        if context is not None:
            return _moments_of_all(context, x, axes, keepdims)
        return old(x, axes, keepdims)

    @patch(BatchNormalization, "__init__")
    def init(
        old: Function, self: Any, *args: Any, synchronized: bool = False, **options: Any
    ) -> None:
        inside = scopes.has_strategy()  # elsewhere Keras refuses synchronized=True
        old(self, *args, synchronized=synchronized and not inside, **options)
        self.synchronized = synchronized

    @patch(BatchNormalization, "_moments")
    def _moments(old: Function, self: Any, inputs: Any, mask: Any) -> Any:
        context = replica() if weighs_examples() else None
        if context is None:
            return old(self, inputs, mask)
        if mask is None:
            return nn.moments(inputs, self._reduction_axes, synchronized=True)
        return _masked_moments_of_all(context, inputs, mask, self._reduction_axes)


def _patch_gathers() -> None:
    for name in ("take", "take_along_axis"):

        @patch(numpy, name)
        def gather(old: Function, x: Any, *args: Any, **options: Any) -> Any:
            rows = old(x, *args, **options)
            if not is_empty() or rows.size or not jnp.size(x):
                return rows
            # For no rows JAX returns a constant: gradients end there, and so do the sums over
            # the replicas that other replicas call for them.
            first = jnp.ravel(jnp.asarray(x))[0].astype(rows.dtype)
            return rows + jnp.where(jnp.zeros((), bool), first, 0)


def _patch_random_numbers() -> None:
    @patch(SeedGenerator, "next")
    def next_seed(old: Function, self: Any, ordered: bool = True) -> Any:
        seed, context = old(self, ordered), replica()
        if context is None:
            return seed
        number = jnp.asarray(context.replica_id_in_sync_group, seed.dtype)
        return seed.at[0].add(number * jnp.asarray(_GOLDEN, seed.dtype))


def _moments_of_all(context: ReplicaContext, x: Any, axes: Any, keepdims: bool) -> Any:
    """Returns mean and variance over the examples of all replicas, as TensorFlow's backend does."""
    dtype = x.dtype
    if dtype in (jnp.float16, jnp.bfloat16):
        x = x.astype(jnp.float32)
    axes = tuple(axes)
    count = jnp.asarray(math.prod(x.shape[axis] for axis in axes), x.dtype)
    local = [x.sum(axes, keepdims=True), jnp.square(x).sum(axes, keepdims=True), count]
    total, squares, count = context.all_reduce("SUM", local)
    count = jnp.maximum(count, 1)
    mean = total / count
    variance = jnp.maximum(squares / count - jnp.square(mean), 0)
    if not keepdims:
        mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
    if x.dtype != dtype:
        largest = 65504.0  # of float16; Keras clips to it
        mean, variance = (jnp.clip(value, -largest, largest) for value in (mean, variance))
    return mean.astype(dtype), variance.astype(dtype)


def _masked_moments_of_all(context: ReplicaContext, x: Any, mask: Any, axes: Any) -> Any:
    """Returns mean and variance over what a mask leaves of all replicas, as Keras does for one."""
    dtype, axes = x.dtype, tuple(axes)
    kept = jnp.broadcast_to(jnp.expand_dims(mask, -1).astype(bool), x.shape)
    x = jnp.where(kept, x, 0).astype(jnp.promote_types(dtype, jnp.float32))
    local = [x.sum(axes), jnp.square(x).sum(axes), kept.astype(x.dtype).sum(axes)]
    total, squares, count = context.all_reduce("SUM", local)
    weight = count + epsilon()
    mean = total / weight
    variance = jnp.maximum(squares - 2 * mean * total + jnp.square(mean) * count, 0) / weight
    return mean.astype(dtype), variance.astype(dtype)

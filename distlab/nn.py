"""`tf.nn`'s losses for replicas: averages over the global batch, not over a replica's part.

A replica holds a part of each batch, and parts may differ in size or be empty. The mean of the
parts' means weighs the examples of a small part too much, and an empty part has no mean: the
result is NaN. The functions here divide by what is the same on all replicas, so that the *sum*
over the replicas is the loss of the batch.

Example:
  >>> import distlab as dl, jax.numpy as jnp
  >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
  >>> dataset = dl.data.Dataset.from_tensor_slices(jnp.array([1.0, 2.0, 3.0, 4.0])).batch(4)
  >>> batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
  >>> [part.shape for part in strategy.experimental_local_results(batch)]
  [(2,), (2,), (0,)]
  >>> def step(errors):
  ...     return dl.nn.compute_average_loss(errors**2, global_batch_size=4)
  >>> strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)
  Array(7.5, dtype=float32)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context import scopes
from distlab.devices import in_flight
from distlab.errors import ArgumentTypeError, ArgumentValueError, ContextError, ValueShapeError
from distlab.text.shown import said_by_jax, shown
from distlab.values.checks import require_alive

__all__ = ["compute_average_loss", "scale_regularization_loss"]


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> jax.Array:
    """Divides the sum of a replica's losses by the size of the global batch.

    Sum the results and the gradients over the replicas. The same as
    `tf.nn.compute_average_loss`.

    Args:
      per_example_loss: The losses of a replica's examples, shape `(examples, ...)`.
      sample_weight: A weight for each example, shape `()`, `(examples,)` or that of the losses,
        with or without a last axis of one.
      global_batch_size: The number of examples in the batch of all replicas. By default the
        number in this replica's part times the number of replicas, which is wrong where parts
        differ in size.

    Returns:
      An array of shape (), zero where `global_batch_size` is zero.

    Raises:
      ValueShapeError: `per_example_loss` has no axis, or `sample_weight` has a shape that does
        not fit it.
      ArgumentTypeError: `per_example_loss` or `sample_weight` is no array of numbers, or
        `global_batch_size` is not an integer, or not one number.
      ArgumentValueError: `global_batch_size` is negative.
      ContextError: It is called in cross-replica context without `global_batch_size`.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> def step():
      ...     losses = jnp.array([1.0, 3.0])
      ...     return dl.nn.compute_average_loss(losses, jnp.array([1.0, 0.0]), global_batch_size=4)
      >>> strategy.reduce("SUM", strategy.run(step), axis=None)
      Array(0.5, dtype=float32)
    """
    losses = _numbers("per_example_loss", per_example_loss)
    if losses.ndim == 0:
        raise ValueShapeError(
            "compute_average_loss needs the loss of each example, shape (examples, ...), got one "
            "number. Leave the mean over the examples out: it is taken here."
        )
    if global_batch_size is None:
        replicas = _replicas("compute_average_loss", "Pass global_batch_size=, or call it")
        global_batch_size = losses.shape[0] * replicas
    size = _checked_size(global_batch_size)
    floating = jnp.issubdtype(losses.dtype, jnp.inexact)
    dtype = losses.dtype if floating else jnp.result_type(float)
    if sample_weight is not None:
        losses = _weighted(losses, _numbers("sample_weight", sample_weight))
    # A sum of float16 numbers would overflow before it is divided, and so would their count.
    exact = jnp.promote_types(dtype, jnp.float32)
    total, size = jnp.sum(losses, dtype=exact), jnp.asarray(size, exact)
    mean = jnp.where(size == 0, jnp.zeros_like(total), total / jnp.where(size == 0, 1, size))
    return mean.astype(dtype)


def scale_regularization_loss(regularization_loss: Any) -> jax.Array:
    """Divides the sum of regularization losses by the number of replicas.

    Each replica computes the same one from the same weights. Divided, the sum over the replicas
    counts it once. The same as `tf.nn.scale_regularization_loss`.

    Args:
      regularization_loss: An array of any shape.

    Returns:
      An array of shape ().

    Raises:
      ArgumentTypeError: It is no array of numbers.
      ContextError: It is called in cross-replica context.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> weights = jnp.array([3.0, 4.0])
      >>> strategy.run(lambda: dl.nn.scale_regularization_loss(weights**2)).values[0]
      Array(12.5, dtype=float32)
    """
    replicas = _replicas("scale_regularization_loss", "Call it")
    return jnp.sum(_numbers("regularization_loss", regularization_loss)) / replicas


def _numbers(name: str, value: Any) -> jax.Array:
    """Returns an argument as an array of numbers."""
    in_flight.require_not_forked()
    require_alive(value, name)
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ArgumentTypeError(
            f"{name} must be an array of numbers, got a {type(value).__name__}: {shown(value)}. "
            f"{said_by_jax(error, 200)} Pass what a function of jax.numpy returns."
        ) from error
    return array


def _replicas(verb: str, remedy: str) -> int:
    if scopes.current_replica() is None:
        raise ContextError(
            f"{verb} belongs in the function that each replica runs, and was called in "
            f"cross-replica context. {remedy} in the function given to run."
        )
    return scopes.current_strategy().num_replicas_in_sync


def _checked_size(size: Any) -> Any:
    """Returns the number of examples, a Python or traced integer."""
    if isinstance(size, np.ndarray | np.generic | jax.Array):
        is_integer = size.shape == () and jnp.issubdtype(size.dtype, jnp.integer)
    else:
        is_integer = isinstance(size, int) and not isinstance(size, bool)
    if not is_integer:
        raise ArgumentTypeError(
            f"global_batch_size must be one whole number of examples, got {shown(size)}. Pass the "
            "number that the dataset's batch(...) was given."
        )
    if not isinstance(size, jax.core.Tracer) and size < 0:
        raise ArgumentValueError(
            f"global_batch_size must be at least 0, got {shown(size)}. Pass the number that the "
            "dataset's batch(...) was given."
        )
    return size


def _weighted(losses: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns losses times weights; a last axis of one is added or dropped, as in TensorFlow."""
    given = weights.shape
    if weights.ndim and weights.ndim == losses.ndim + 1 and given[-1] == 1:
        weights = weights[..., 0]
    elif weights.ndim and losses.ndim == weights.ndim + 1:
        weights = weights[..., None]
    try:
        shape = np.broadcast_shapes(losses.shape, weights.shape)
    except ValueError:
        shape = None
    if shape != losses.shape:
        raise ValueShapeError(
            f"sample_weight must have a weight for each loss: losses have shape {losses.shape}, "
            f"weights {given}. Use shape ({losses.shape[0]},), one weight for each example."
        )
    wide = jnp.promote_types(jnp.result_type(losses, weights), jnp.float32)
    return losses.astype(wide) * weights.astype(wide)

"""Batch normalization over the examples of all replicas."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx

from distlab.context.replica_context import get_replica_context
from distlab.errors import ContextError


@final
class BatchNorm(nnx.BatchNorm):
    """`nnx.BatchNorm` whose statistics are those of the global batch.

    Each example has the same weight on every replica, so that a partial batch gives what one
    device gives, and replicas without examples do no harm. `nnx.BatchNorm(axis_name="replica")`
    takes the mean over the replicas instead, which is the same for batches that divide evenly.

    It takes the arguments of `nnx.BatchNorm`; `axis_name` and `axis_index_groups` are ignored.

    Args:
      num_features: The size of the input along `axis`.
      **options: The other arguments of `nnx.BatchNorm`, among them `rngs`.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> from flax import nnx
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
      >>> norm = dl.flax.BatchNorm(1, momentum=0.0, rngs=nnx.Rngs(0))
      >>> dataset = dl.data.Dataset.from_tensor_slices(jnp.array([[1.0], [2.0], [6.0], [7.0]]))
      >>> for x in strategy.experimental_distribute_dataset(dataset.batch(4)):
      ...     y = strategy.run(lambda norm, x: norm(x), args=(norm, x))
      >>> norm.mean[...].tolist(), norm.var[...].tolist()
      ([4.0], [6.5])
    """

    def __call__(
        self, x: Any, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> Any:
        """Normalizes the input by the statistics of all replicas' examples.

        Args:
          x: The input of this replica.
          use_running_average: Whether to use the stored statistics; by default as the layer says.
          mask: Booleans that broadcast to `x`: which values count in the statistics.

        Raises:
          ContextError: It trains in cross-replica context, where there is no replica.
        """
        stored = self.use_running_average if use_running_average is None else use_running_average
        if stored is None or stored:
            return super().__call__(x, use_running_average)
        before = self.mean[...], self.var[...]
        *statistics, count = self._statistics(jnp.asarray(x), mask)
        self.mean[...], self.var[...] = statistics
        normalized = super().__call__(x, use_running_average=True)
        self.mean[...], self.var[...] = (
            jax.lax.stop_gradient(
                jnp.where(count > 0, self.momentum * old + (1 - self.momentum) * new, old)
            )
            for old, new in zip(before, statistics, strict=True)
        )
        return normalized

    def _statistics(self, x: jax.Array, mask: jax.Array | None) -> list[jax.Array]:
        """Returns the mean and variance over all replicas, and the number of values in them."""
        context: Any = get_replica_context()
        if context is None:
            raise ContextError(
                "BatchNorm adds up the replicas' statistics, and was called outside of a replica "
                "function, in a strategy's scope. Call it in a function that strategy.run runs, or "
                "with use_running_average=True."
            )
        feature = self.axis % x.ndim
        axes = tuple(axis for axis in range(x.ndim) if axis != feature)
        values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        counted = jnp.broadcast_to(True if mask is None else mask.astype(bool), x.shape)

        def sums(values: jax.Array) -> jax.Array:
            return jnp.where(counted, values, 0).sum(axes)

        count, total = context.all_reduce(
            "SUM", [counted.astype(values.dtype).sum(axes), sums(values)]
        )
        size = jnp.maximum(count, 1)
        mean = total / size
        shape = [-1 if axis == feature else 1 for axis in range(x.ndim)]
        squares = context.all_reduce("SUM", sums((values - mean.reshape(shape)) ** 2))
        return [mean, squares / size, count]

"""Metrics that reduce right over replicas, partial and empty batches, with Flax's mathematics.

Made in `strategy.scope()`, updated in the step, read outside; names as in `tf.keras.metrics`.
They need Flax: pip install "distlab[flax]".

Example:
  >>> import distlab as dl, jax.numpy as jnp
  >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
  >>> with strategy.scope():
  ...     losses = dl.metrics.Mean("loss")
  >>> def step(error):
  ...     losses.update_state(error**2)
  >>> dataset = dl.data.Dataset.from_tensor_slices(jnp.array([1.0, 2.0, 4.0])).batch(3)
  >>> for batch in strategy.experimental_distribute_dataset(dataset):
  ...     strategy.run(step, args=(batch,))
  >>> float(losses.result())  # of three examples, two on one replica and one on the other
  7.0
"""

from __future__ import annotations

from distlab.integrations.flax.metrics import Accuracy, Mean, Metric

__all__ = ["Accuracy", "Mean", "Metric"]

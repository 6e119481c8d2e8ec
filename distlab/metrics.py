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

All other names are those of `keras.metrics`, such as `AUC`, `Precision`, `Recall`, `Sum`, `MeanIoU`
and `CategoricalAccuracy`: Keras' own classes, which need Keras: pip install "distlab[keras]".
"""

from __future__ import annotations

from typing import Any

from distlab.integrations.flax.metrics import Accuracy, Mean, Metric
from distlab.integrations.keras.extra import needing_keras

__all__ = ["Accuracy", "Mean", "Metric"]


def __getattr__(name: str) -> Any:
    """Returns a metric of Keras."""
    if name.startswith("_"):
        raise AttributeError(f"module 'distlab.metrics' has no attribute {name!r}")
    return getattr(needing_keras("keras.metrics", f"distlab.metrics.{name}"), name)

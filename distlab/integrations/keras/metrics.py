"""Keras' metrics under `distlab.metrics`."""

from __future__ import annotations

from typing import Any

from distlab.errors import MissingExtraError


def metric_of_keras(name: str) -> Any:
    """Returns what `keras.metrics` has under a name; raises MissingExtraError without Keras."""
    try:
        from keras import metrics
    except ImportError as error:
        raise MissingExtraError(
            f"distlab.metrics.{name} is a metric of Keras, which is not installed or has no "
            'backend. Install it with: pip install "distlab[keras]", and set KERAS_BACKEND=jax.'
        ) from error
    return getattr(metrics, name)

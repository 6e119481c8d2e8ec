"""Whether a model's replicas or its examples count alike."""

from __future__ import annotations

from typing import Any, Literal

from distlab.errors import ArgumentValueError
from distlab.text.shown import shown

_by_examples = False


def weigh_by(unit: Literal["replicas", "examples"]) -> None:
    """Chooses what counts alike in a step of the Keras models that are made from here on.

    With "replicas", the default, results are those of Keras on TensorFlow: each replica computes
    the mean over its part of the batch, and these means count alike. So an example of a partial
    batch, of which the last replicas have fewer, may count several times as much as another;
    batch normalization sees a replica's part, and gradients are clipped before they are added up.

    With "examples", results are those of one device: each example of the global batch counts
    alike, batch normalization sees the global batch, and gradients are clipped once added up. A
    loss function that returns one number for all examples is taken for a mean.

    Args:
      unit: "replicas" or "examples".

    Raises:
      ArgumentValueError: It is neither.

    Example:
      >>> import distlab as dl
      >>> dl.keras.weigh_by("examples")
      >>> dl.keras.weigh_by("replicas")
    """
    given: Any = unit
    if given not in ("replicas", "examples"):
        raise ArgumentValueError(
            f'weigh_by accepts "replicas" or "examples", got {shown(given)}. "replicas" computes '
            'what Keras on TensorFlow does, "examples" what one device does.'
        )
    global _by_examples
    _by_examples = given == "examples"


def weighs_examples() -> bool:
    """Returns whether models that are made now weigh by examples."""
    return _by_examples

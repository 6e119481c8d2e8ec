"""Gradients by Keras' variables that a function reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src import tree

from distlab.integrations.keras.held import held_of, hold_outside
from distlab.variables.gradients import differentiated


def value_and_grad(loss_fn: Callable[[], Any], variables: Any, *, has_aux: bool = False) -> Any:
    """Computes a loss and its gradients by Keras' variables, as `tf.GradientTape` does.

    `loss_fn` calls the model as on TensorFlow: layers read their variables, and may assign others,
    such as moving statistics and seeds. In a replica function the gradients are those of the
    replica's own loss; `optimizer.apply_gradients` adds them up.

    Args:
      loss_fn: A function without arguments that returns a loss, or with `has_aux` a pair of the
        loss and a nest of other results. Of a loss that is no scalar, the sum is differentiated.
      variables: A variable of Keras, or a nest of them, such as `model.trainable_variables`.
      has_aux: Whether `loss_fn` returns a pair.

    Returns:
      A pair of what `loss_fn` returns and the gradients, in the structure of `variables`: each of
      the variable's shape, or None where the loss does not depend on the variable.

    Raises:
      ArgumentTypeError: `loss_fn` does not return a pair with `has_aux`.

    Example:
      >>> import distlab as dl, keras
      >>> with dl.MirroredStrategy(["CPU:0"]).scope():
      ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
      >>> x = keras.ops.ones((1, 2))
      >>> loss, (gradient,) = dl.keras.value_and_grad(
      ...     lambda: keras.ops.sum(model(x)), model.trainable_variables
      ... )
      >>> gradient.tolist()
      [[1.0], [1.0]]
    """
    leaves = tree.flatten(variables)
    held = [(held_of(leaf) or hold_outside(leaf)).variable for leaf in leaves]
    result, gradients = differentiated(loss_fn, held, has_aux=has_aux)
    return result, tree.pack_sequence_as(variables, gradients)

"""Gradients by variables that a function reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from distlab.errors import ArgumentTypeError
from distlab.text.shown import shown
from distlab.variables import frames
from distlab.variables.protocol import StoredVariable
from distlab.variables.variable import Variable


def value_and_grad(loss_fn: Callable[[], Any], variables: Any, *, has_aux: bool = False) -> Any:
    """Computes a loss and its gradients by variables, as `tf.GradientTape` does.

    `loss_fn` reads the variables, where `jax.value_and_grad` would need them as arguments. In a
    replica function the gradients are those of the replica's own loss: nothing is added up. What
    `loss_fn` assigns is assigned once it has returned.

    Args:
      loss_fn: A function without arguments that returns a loss, or with `has_aux` a pair of the
        loss and a nest of other results. Of a loss that is no scalar, the sum is differentiated.
      variables: A variable, or a nest of them.
      has_aux: Whether `loss_fn` returns a pair.

    Returns:
      A pair of what `loss_fn` returns and the gradients, in the structure of `variables`: each of
      the variable's shape, or None where the loss does not depend on the variable.

    Raises:
      ArgumentTypeError: `variables` has a leaf that is no variable, or `loss_fn` does not return
        a pair with `has_aux`.

    Example:
      >>> import distlab as dl
      >>> w = dl.Variable([1.0, 2.0])
      >>> loss, gradient = dl.value_and_grad(lambda: (w * w).sum(), w)
      >>> float(loss), gradient.tolist()
      (5.0, [2.0, 4.0])
    """
    leaves, structure = jax.tree.flatten(variables, is_leaf=lambda leaf: isinstance(leaf, Variable))
    for leaf in leaves:
        if not isinstance(leaf, Variable):
            raise ArgumentTypeError(
                f"value_and_grad differentiates by variables, got {shown(leaf)}. Use "
                "jax.value_and_grad for arrays, and distlab.keras.value_and_grad for Keras' "
                "variables."
            )
    result, gradients = differentiated(loss_fn, leaves, has_aux=has_aux)
    return result, jax.tree.unflatten(structure, gradients)


def differentiated(
    loss_fn: Callable[[], Any], variables: list[Variable], *, has_aux: bool
) -> tuple[Any, list[Any]]:
    """Returns the result of `loss_fn`, and a gradient for each variable: None if it has none."""
    outer, unique = frames.current(), list(dict.fromkeys(variables))
    reached: set[int] = set()
    assigned: list[Any] = []

    def of_values(values: list[jax.Array]) -> tuple[jax.Array, tuple[Any, ...]]:
        marked = [_marked(value, position, reached) for position, value in enumerate(values)]
        frame = frames.GradientFrame(outer, dict(zip(unique, marked, strict=True)))
        before: dict[StoredVariable, jax.Array] = dict(frame.written)
        with frames.use(frame):
            result = loss_fn()
        loss = _loss(result, has_aux=has_aux)
        changed = {v: new for v, new in frame.written.items() if new is not before.get(v)}
        assigned[:] = changed
        leaves, structure = jax.tree.flatten(result)
        arrays = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}
        others = _Static((structure, [None if n in arrays else x for n, x in enumerate(leaves)]))
        return jnp.sum(loss), (arrays, others, list(changed.values()))

    values = [variable.value() for variable in unique]
    (_, (arrays, others, news)), gradients = jax.value_and_grad(of_values, has_aux=True)(values)
    for variable, new in zip(assigned, news, strict=True):
        if outer is None:
            variable.assign(new)
        else:
            outer.set(variable, new)
    structure, leaves = others.value
    result = jax.tree.unflatten(structure, [arrays.get(n, x) for n, x in enumerate(leaves)])
    found = {
        variable: gradient if n in reached else None
        for n, (variable, gradient) in enumerate(zip(unique, gradients, strict=True))
    }
    return result, [found[variable] for variable in variables]


@jax.tree_util.register_static
class _Static:
    """Results of a function that are no arrays, and their structure."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _loss(result: Any, *, has_aux: bool) -> Any:
    if not has_aux:
        return result
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ArgumentTypeError(
            f"With has_aux=True loss_fn returns a pair (loss, aux), got {shown(result)}. Return a "
            "pair, or leave has_aux out."
        )
    return result[0]


def _marked(value: jax.Array, position: int, reached: set[int]) -> jax.Array:
    """Returns a value whose position is added to `reached` if the loss depends on it.

    JAX asks for a gradient only there; elsewhere it passes zeros, where a tape gives None.
    """

    @jax.custom_vjp
    def same(value: jax.Array) -> jax.Array:
        return value

    def backward(_: None, gradient: jax.Array) -> tuple[jax.Array]:
        reached.add(position)
        return (gradient,)

    same.defvjp(lambda value: (value, None), backward)
    return same(value)

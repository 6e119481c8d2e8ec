"""Optimizers: gradients are added up over the replicas where TensorFlow's optimizer does so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from distlab.context.replica_context import ReplicaContext
from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import (
    added_up,
    gradients_added_up,
    is_empty,
    replica,
    weighs_examples,
)


def patch_optimizers() -> None:
    """Adds up gradients before the update, once."""

    @patch(BaseOptimizer, "_backend_update_step")
    def _backend_update_step(
        old: Function, self: Any, grads: Any, variables: Any, rate: Any
    ) -> Any:
        context = replica()
        if context is not None and not added_up():
            grads = _sums(context, grads)
        return old(self, grads, variables, rate)

    @patch(BaseOptimizer, "apply")
    def apply(old: Function, self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        context = replica()
        if context is None or added_up() or not weighs_examples():
            return old(self, grads, trainable_variables)
        with gradients_added_up():  # clipped as on one device: all replicas' at once
            return old(self, _sums(context, grads), trainable_variables)

    @patch(LossScaleOptimizer, "stateless_apply")
    def stateless_apply(
        old: Function, self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        context = replica()
        if context is None or added_up():
            return old(self, optimizer_variables, grads, trainable_variables)
        with gradients_added_up():  # the update is in a cond, which can hold no collective
            return old(self, optimizer_variables, _sums(context, grads), trainable_variables)


def _sums(context: ReplicaContext, grads: Sequence[Any]) -> list[Any]:
    """Returns the sum of each gradient; None stays None."""
    mine = [grad for grad in grads if grad is not None]
    if is_empty():
        mine = [jnp.nan_to_num(grad, posinf=0.0, neginf=0.0) for grad in mine]
    sums = iter(context.all_reduce("SUM", mine) if mine else [])
    return [None if grad is None else next(sums) for grad in grads]

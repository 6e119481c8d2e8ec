"""Optimizers: gradients are added up over the replicas where TensorFlow's optimizer does so."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
from keras.src import backend
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.errors import ScopeError
from distlab.integrations.keras.held import held_of, is_of_current, lying_as, making
from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import (
    added_up,
    gradients_added_up,
    is_empty,
    replica,
    weighs_examples,
)
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import get_strategy
from distlab.variables import frames, replicas


def patch_optimizers() -> None:
    """Adds up gradients before the update, once."""
    _patch_sums()
    _patch_variables()


def _patch_sums() -> None:
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
        if frames.current() is not None and not in_stateless_scope():
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
                if not self.built:
                    replicas.made_once(lambda: _build(self, trainable_variables), self.name)
            _require_one_strategy(self, trainable_variables or ())
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


def _patch_variables() -> None:
    @patch(BaseOptimizer, "add_variable_from_reference")
    def add_variable_from_reference(
        old: Function, self: Any, reference_variable: Any, *args: Any, **options: Any
    ) -> Any:
        with lying_as(reference_variable):
            return old(self, reference_variable, *args, **options)

    @patch(BaseOptimizer, "add_variable")
    def add_variable(old: Function, self: Any, *args: Any, **options: Any) -> Any:
        with _place_of(self), making(of_optimizer=True):
            variable = old(self, *args, **options)
        later = getattr(self, "_distlab_later", {})  # what a checkpoint has of it
        number = len(self.variables) - 1
        if number in later:
            variable.assign(later.pop(number))
        return variable


def _build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the variables of an optimizer, as its first `apply` does."""
    with backend.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(variables)
    optimizer.built = True


def _place_of(optimizer: Any) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope for the variables of an optimizer: the one in which it was made."""
    iterations = getattr(optimizer, "_iterations", None)
    if iterations is None:
        return contextlib.nullcontext()
    held = held_of(iterations)
    if held is None:
        return scopes.outside()
    if scopes.has_strategy():
        return contextlib.nullcontext()
    return cast(Strategy, held.variable.strategy).scope()


def _require_one_strategy(optimizer: Any, variables: Sequence[Any]) -> None:
    """Checks that the variables of a step were made in the scope of the strategy that runs it."""
    counted = {id(optimizer._iterations), id(getattr(optimizer, "_learning_rate", None))}
    own = (v for v in optimizer.variables if id(v) not in counted)
    for variable in (*variables, *own):
        if not is_of_current(variable):
            raise ScopeError(
                f"Variable ({variable.path}) was not created in the scope of {get_strategy()!r}, "
                "which runs this step. Make model and optimizer in `with strategy.scope():`."
            )


def _sums(context: ReplicaContext, grads: Sequence[Any]) -> list[Any]:
    """Returns the sum of each gradient; None stays None."""
    mine = [grad for grad in grads if grad is not None]
    if is_empty():
        mine = [jnp.nan_to_num(grad, posinf=0.0, neginf=0.0) for grad in mine]
    sums = iter(context.all_reduce("SUM", mine) if mine else [])
    return [None if grad is None else next(sums) for grad in grads]

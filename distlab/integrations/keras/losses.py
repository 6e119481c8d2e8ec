"""Losses: the replicas' means become parts of the global batch's mean, as on TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.losses import loss as losses
from keras.src.metrics.reduction_metrics import Mean, MeanMetricWrapper
from keras.src.trainers.trainer import Trainer

from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import (
    note_reduced,
    reduced_in,
    replica,
    share,
    weighs_examples,
)


def patch_losses() -> None:
    """Scales losses where Keras does so for `tf.distribute`."""
    _patch_scales()
    _patch_reductions()
    _patch_metrics()
    _patch_trainer()


def _patch_scales() -> None:
    @patch(losses, "scale_loss_for_distribution")
    def scale_loss_for_distribution(old: Function, value: Any) -> Any:
        context = replica()
        if context is not None:
            return value * _cast(share(context), value)
        if scopes.in_cross_replica_context():  # in `scope()`, as on TensorFlow
            return value / _cast(scopes.current_strategy().num_replicas_in_sync, value)
        return old(value)

    @patch(losses, "unscale_loss_for_distribution")
    def unscale_loss_for_distribution(old: Function, value: Any) -> Any:
        context = replica()
        if context is None:
            return old(value)
        return value / _cast(jnp.maximum(share(context), 1e-30), value)


def _patch_reductions() -> None:
    @patch(losses, "reduce_values")
    def reduce_values(
        old: Function,
        values: Any,
        sample_weight: Any = None,
        reduction: Any = "sum_over_batch_size",
    ) -> Any:
        context = replica()
        if context is None or reduction in {None, "none"}:
            return old(values, sample_weight, reduction)
        note_reduced()
        weighted = reduction == "mean_with_sample_weight" and sample_weight is not None
        if tuple(values.shape) == () and reduction != "sum":
            return _of_one_number(values)
        if weighted and weighs_examples():
            return _over_all_weights(values, sample_weight, context)
        reduced = old(values, sample_weight, reduction)
        # Keras leaves the loss of no examples as it is: [].
        return jnp.sum(reduced) if tuple(reduced.shape) == (0,) else reduced

    @patch(losses, "apply_mask")
    def apply_mask(old: Function, sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        context = replica() if mask is not None and weighs_examples() else None
        if context is None or reduction not in {"mean", "sum_over_batch_size"}:
            return old(sample_weight, mask, dtype, reduction)
        # Keras weighs what the mask leaves by total / valid: here those of all replicas.
        total = jnp.float32(math.prod(mask.shape))
        total, valid = _sums(context, [total, jnp.sum(mask, dtype=jnp.float32)])
        weight = old(sample_weight, mask, dtype, "none")
        return weight * _cast(total / jnp.maximum(valid, 1), weight)


def _patch_metrics() -> None:
    @patch(Mean, "update_state")
    def update_state(old: Function, self: Any, values: Any, sample_weight: Any = None) -> Any:
        # What a metric function returns; a Mean of one's own is passed shares already.
        if isinstance(self, MeanMetricWrapper) and weighs_examples() and sample_weight is None:
            context = replica()
            if context is not None and jnp.shape(values) == ():
                sample_weight = share(context)
        return old(self, values, sample_weight)


def _of_one_number(loss: Any) -> Any:
    """Returns a replica's part of a loss that is one number already: by examples, of a mean."""
    return losses.scale_loss_for_distribution(loss) if weighs_examples() else loss


def _over_all_weights(values: Any, sample_weight: Any, context: ReplicaContext) -> Any:
    """Returns this replica's part of the sum of losses over the weights of all examples."""
    (weights,) = _sums(context, [jnp.sum(sample_weight, dtype=jnp.float32)])
    loss = jnp.sum(values)
    return jnp.where(weights == 0, 0, loss / _cast(jnp.where(weights == 0, 1, weights), loss))


def _sums(context: ReplicaContext, local: list[jax.Array]) -> list[jax.Array]:
    """Returns the sums over the replicas of numbers that no gradient flows through."""
    summed: list[jax.Array] = context.all_reduce("SUM", list(map(jax.lax.stop_gradient, local)))
    return summed


def _patch_trainer() -> None:
    @patch(JAXTrainer, "_update_metrics_variables")
    def _update_metrics_variables(
        old: Function, self: Any, metrics_variables: Any, unscaled_loss: Any, *data: Any
    ) -> Any:
        loss = losses.unscale_loss_for_distribution(unscaled_loss)
        return old(self, metrics_variables, loss, *data)

    @patch(JAXTrainer, "_aggregate_additional_loss")
    def _aggregate_additional_loss(old: Function, self: Any, loss: Any) -> Any:
        note_reduced()
        return losses.scale_loss_for_distribution(old(self, loss))

    @patch(Trainer, "_compute_loss")
    def _compute_loss(old: Function, self: Any, *args: Any, **options: Any) -> Any:
        if not weighs_examples() or type(self).compute_loss is Trainer.compute_loss:
            return old(self, *args, **options)
        loss, reduced = reduced_in(lambda: old(self, *args, **options))
        return loss if reduced else _of_one_number(loss)


def _cast(weight: Any, value: Any) -> Any:
    return jnp.asarray(weight, value.dtype)

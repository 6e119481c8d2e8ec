"""Losses: the replicas' means become parts of the global batch's mean, as on TensorFlow."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.losses import loss as losses

from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import replica, share


def patch_losses() -> None:
    """Scales losses where Keras does so for `tf.distribute`."""
    _patch_scales()
    _patch_trainer()


def _patch_scales() -> None:
    @patch(losses, "scale_loss_for_distribution")
    def _(old: Function) -> Function:
        def scale_loss_for_distribution(value: Any) -> Any:
            context = replica()
            return old(value) if context is None else value * _cast(share(context), value)

        return scale_loss_for_distribution

    @patch(losses, "unscale_loss_for_distribution")
    def _(old: Function) -> Function:
        def unscale_loss_for_distribution(value: Any) -> Any:
            context = replica()
            if context is None:
                return old(value)
            return value / _cast(jnp.maximum(share(context), 1e-30), value)

        return unscale_loss_for_distribution

    @patch(losses, "reduce_values")
    def _(old: Function) -> Function:
        def reduce_values(
            values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size"
        ) -> Any:
            reduced = old(values, sample_weight, reduction)
            # Keras leaves the loss of no examples as it is: [].
            none = replica() is not None and tuple(reduced.shape) == (0,)
            return jnp.sum(reduced) if none and reduction not in {None, "none"} else reduced

        return reduce_values


def _patch_trainer() -> None:
    @patch(JAXTrainer, "_update_metrics_variables")
    def _(old: Function) -> Function:
        def _update_metrics_variables(
            self: Any, metrics_variables: Any, unscaled_loss: Any, *data: Any
        ) -> Any:
            loss = losses.unscale_loss_for_distribution(unscaled_loss)
            return old(self, metrics_variables, loss, *data)

        return _update_metrics_variables

    @patch(JAXTrainer, "_aggregate_additional_loss")
    def _(old: Function) -> Function:
        def _aggregate_additional_loss(self: Any, loss: Any) -> Any:
            return losses.scale_loss_for_distribution(old(self, loss))

        return _aggregate_additional_loss


def _cast(weight: Any, value: Any) -> Any:
    return jnp.asarray(weight, value.dtype)

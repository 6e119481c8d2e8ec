"""What distlab adds to Keras, once it has been imported."""

from __future__ import annotations

from typing import Any, Final

from distlab.context import scopes
from distlab.errors import UnsupportedError
from distlab.integrations.keras.patching import Function, patch

_JAX: Final = "jax"


def prepare() -> None:
    """Adds distlab's part to Keras on JAX; on other backends, an error in a strategy's scope."""
    import keras

    if keras.backend.backend() == _JAX:
        from distlab.integrations.keras.layers import patch_layers
        from distlab.integrations.keras.losses import patch_losses
        from distlab.integrations.keras.optimizers import patch_optimizers
        from distlab.integrations.keras.resuming import patch_epochs
        from distlab.integrations.keras.trainer import patch_trainer
        from distlab.integrations.keras.variables import patch_variables

        patch_losses()
        patch_optimizers()
        patch_layers()
        patch_variables()
        patch_trainer()
        patch_epochs()
    else:
        _refuse(keras.backend.backend())


def _refuse(backend: str) -> None:
    """Raises an error where a model of another backend is made in a strategy's scope."""
    from keras.src.trainers.trainer import Trainer

    @patch(Trainer, "__init__")
    def _(old: Function) -> Function:
        def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
            if scopes.has_strategy():
                raise UnsupportedError(
                    f"Keras runs on {backend}, and distlab's strategies run JAX programs, so "
                    f"{type(self).__name__} can't be made in strategy.scope(). Set "
                    'KERAS_BACKEND=jax, or os.environ["KERAS_BACKEND"] = "jax", before keras is '
                    "imported."
                )
            old(self, *args, **options)

        return __init__

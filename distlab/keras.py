"""Additions to Keras 3, beyond `fit` and its relatives under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlab.errors import MissingExtraError
from distlab.integrations.keras.replica import weigh_by

if TYPE_CHECKING:
    from distlab.integrations.keras.callbacks import BackupAndRestore, Controlled

__all__ = ["BackupAndRestore", "Controlled", "weigh_by"]


def __getattr__(name: str) -> Any:
    """Loads a callback, which needs Keras, when it is asked for."""
    if name in ("BackupAndRestore", "Controlled"):
        try:
            from distlab.integrations.keras import callbacks
        except ImportError as error:
            raise MissingExtraError(
                f"distlab.keras.{name} is a callback of Keras, which is not installed or has "
                'no backend. Install it with: pip install "distlab[keras]", and set '
                "KERAS_BACKEND=jax."
            ) from error
        return getattr(callbacks, name)
    raise AttributeError(f"module 'distlab.keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__

"""What distlab has for Keras 3, beside `fit` and its relatives under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlab.errors import MissingExtraError
from distlab.integrations.keras.weighing import weigh_by

if TYPE_CHECKING:
    from distlab.integrations.keras.backup import BackupAndRestore
    from distlab.integrations.keras.callbacks import Controlled

__all__ = ["BackupAndRestore", "Controlled", "weigh_by"]


def __getattr__(name: str) -> Any:
    """Loads a callback, which needs Keras, when it is asked for."""
    if name in ("BackupAndRestore", "Controlled"):
        try:
            from distlab.integrations.keras.backup import BackupAndRestore
            from distlab.integrations.keras.callbacks import Controlled
        except ImportError as error:
            raise MissingExtraError(
                f"distlab.keras.{name} is a callback of Keras, which is not installed or has "
                'no backend. Install it with: pip install "distlab[keras]", and set '
                "KERAS_BACKEND=jax."
            ) from error
        return Controlled if name == "Controlled" else BackupAndRestore
    raise AttributeError(f"module 'distlab.keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__

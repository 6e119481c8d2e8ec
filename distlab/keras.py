"""Additions to Keras 3, beyond `fit` and its relatives under a strategy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from distlab.errors import MissingExtraError
from distlab.integrations.keras.replica import weigh_by

if TYPE_CHECKING:
    from distlab.integrations.keras.callbacks import BackupAndRestore, Controlled
    from distlab.integrations.keras.gradients import value_and_grad

__all__ = ["BackupAndRestore", "Controlled", "value_and_grad", "weigh_by"]

_MODULES: Final = {
    "BackupAndRestore": "callbacks",
    "Controlled": "callbacks",
    "value_and_grad": "gradients",
}


def __getattr__(name: str) -> Any:
    """Loads what needs Keras when it is asked for."""
    if name in _MODULES:
        try:
            module = import_module(f"distlab.integrations.keras.{_MODULES[name]}")
        except ImportError as error:
            raise MissingExtraError(
                f"distlab.keras.{name} needs Keras, which is not installed or has "
                'no backend. Install it with: pip install "distlab[keras]", and set '
                "KERAS_BACKEND=jax."
            ) from error
        return getattr(module, name)
    raise AttributeError(f"module 'distlab.keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__

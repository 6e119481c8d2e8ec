"""Additions to Keras 3, beyond `fit` and its relatives under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from distlab.integrations.keras.extra import needing_keras
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
        module = f"distlab.integrations.keras.{_MODULES[name]}"
        return getattr(needing_keras(module, f"distlab.keras.{name}"), name)
    raise AttributeError(f"module 'distlab.keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__

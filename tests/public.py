"""The public names: those of `distlab`, and of its public modules."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import distlab

MODULES = (
    *("distlab", "distlab.advice", "distlab.cluster_resolver", "distlab.coordinator"),
    *("distlab.data", "distlab.errors", "distlab.events", "distlab.experimental"),
    *("distlab.tpu", "distlab.widgets", "distlab_dashboard"),
)


def names() -> dict[str, object]:
    """Returns every public name with its module in front, and what it names; no modules."""
    found = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module in MODULES
        for name in _names_of(importlib.import_module(module))
    }
    return {name: thing for name, thing in found.items() if not isinstance(thing, ModuleType)}


def _names_of(module: ModuleType) -> list[str]:
    """Returns `__all__`, or the classes and functions that a module without one defines."""
    if module is distlab or hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, thing in vars(module).items()
        if (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
        and not name.startswith("_")
    ]

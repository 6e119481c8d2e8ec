"""The public names: those of `distlab`, and of its public modules."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import distlab

MODULES = (
    *("advice", "charts", "cluster_resolver", "coordinator", "data", "errors", "estimator"),
    *(
        "events",
        "experimental",
        "experimental.partitioners",
        "flax",
        "folds",
        "io",
        "keras",
        "loggers",
        "metrics",
        "nest",
        "nn",
    ),
    *("tpu", "train", "widgets"),
)
"""The public modules of `distlab`."""


def names() -> dict[str, object]:
    """Returns every public name with its module in front, and what it names; no modules."""
    modules = ("distlab", *(f"distlab.{module}" for module in MODULES), "distlab_dashboard")
    found = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module in modules
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

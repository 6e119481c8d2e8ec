"""Modules that need Keras, which may not be installed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from distlab.errors import MissingExtraError


def needing_keras(module: str, name: str) -> ModuleType:
    """Imports a module for a public name of distlab; raises MissingExtraError without Keras."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} needs Keras, which is not installed or has no backend. Install it with: pip "
            'install "distlab[keras]", and set KERAS_BACKEND=jax.'
        ) from error

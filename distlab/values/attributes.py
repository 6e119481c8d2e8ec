"""Attributes of users' objects, of which a class may answer with any error.

A dict with `__getattr__ = dict.__getitem__` raises KeyError for an attribute that it lacks, where
`getattr` and `hasattr` expect an AttributeError.
"""

from __future__ import annotations

from typing import Any

from distlab.text.shown import said_by_jax


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """Returns an attribute of a user's object; the default where asking for it fails."""
    try:
        return getattr(value, name, default)
    except Exception:  # noqa: BLE001 - any code of the user's
        return default


def why_no_array(value: Any, error: Exception, length: int = 400) -> str | None:
    """Returns what JAX's conversion says of a value that is no array; None for other errors.

    JAX looks for attributes of arrays first, so that an object may answer with its own error.
    """
    if isinstance(error, TypeError | ValueError | OverflowError):
        return said_by_jax(error, length)
    try:
        getattr(value, "__jax_array__", None)
    except Exception as raised:  # noqa: BLE001 - any code of the user's
        return f"Its class raises {type(raised).__name__} for the attributes that it lacks."
    return None

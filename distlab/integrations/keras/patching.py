"""Replacing a function of Keras by one that calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]


def patch(owner: Any, name: str) -> Callable[[Callable[[Function], Function]], None]:
    """Replaces `owner.name` by what the decorated function makes of it, once."""

    def replace(make: Callable[[Function], Function]) -> None:
        old = getattr(owner, name)
        if getattr(old, "_of_distlab", False):
            return
        new: Any = functools.wraps(old)(make(old))
        new.__signature__ = inspect.signature(old)  # Keras reads those of constructors
        new._of_distlab = True
        setattr(owner, name, new)

    return replace

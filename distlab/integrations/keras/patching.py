"""Replacing a function of Keras by one that calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]


def patch(owner: Any, name: str) -> Callable[[Function], None]:
    """Replaces `owner.name`, once, by the decorated function, which gets the old one first."""

    def replace(function: Function) -> None:
        old = getattr(owner, name)
        if getattr(old, "_of_distlab", False):
            return

        @functools.wraps(old)
        def new(*args: Any, **options: Any) -> Any:
            return function(old, *args, **options)

        replacement: Any = new
        replacement.__signature__ = inspect.signature(old)  # Keras reads those of constructors
        replacement._of_distlab = True
        setattr(owner, name, replacement)

    return replace

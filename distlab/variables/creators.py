"""Functions that take part in the making of variables: `variable_creator_scope`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, TypeAlias, final

Creator: TypeAlias = Callable[..., Any]
"""Called as `creator(next_creator, **kwargs)`; returns a variable."""

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("distlab_creators", default=())


@final
class _Scope(contextlib.ContextDecorator):
    """Context that adds a creator to this thread's; it may be entered again."""

    def __init__(self, creator: Creator) -> None:
        self._creator = creator
        self._tokens: list[Token[tuple[Creator, ...]]] = []

    def __enter__(self) -> None:
        self._tokens.append(_creators.set((*_creators.get(), self._creator)))

    def __exit__(self, *error: object) -> None:
        _creators.reset(self._tokens.pop())


def variable_creator_scope(variable_creator: Creator) -> contextlib.AbstractContextManager[None]:
    """Lets a function take part in the making of variables (`tf.variable_creator_scope`).

    Each variable that is made in the block is made by `variable_creator(next_creator, **kwargs)`,
    where `kwargs` are the arguments of `distlab.Variable`. The function may change them, call
    `next_creator(**kwargs)` and change or replace its result. Of nested scopes the innermost
    function is called first. It is called once for all replicas.

    Args:
      variable_creator: The function.

    Example:
      >>> import distlab as dl
      >>> def frozen(next_creator, **kwargs):
      ...     return next_creator(**{**kwargs, "trainable": False})
      >>> with dl.variable_creator_scope(frozen):
      ...     scale = dl.Variable(1.0)
      >>> scale.trainable
      False
    """
    return _Scope(variable_creator)


def chained(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that makes a variable with the creators of this thread's scopes."""
    for creator in _creators.get():
        make = partial(creator, make)
    return make

"""Functions that take part in the making of variables: `variable_creator_scope`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

Creator: TypeAlias = Callable[..., Any]
"""Called as `creator(next_creator, **kwargs)`; returns a variable."""

_creators: ContextVar[tuple[Creator, ...]] = ContextVar("distlab_creators", default=())


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
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
    token = _creators.set((*_creators.get(), variable_creator))
    try:
        yield
    finally:
        _creators.reset(token)


def chained(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that makes a variable with the creators of this thread's scopes."""
    for creator in _creators.get():
        make = partial(creator, make)
    return make

"""A base class for objects that can't be copied or pickled."""

from __future__ import annotations

from typing import Any, ClassVar

from distlab.errors import ArgumentTypeError


class Uncopied:
    """Base class for objects that can't be copied or pickled.

    Attributes:
      _uncopied: The error's message, with the reason and the remedy. `{0}` is the object.
    """

    __slots__ = ()
    _uncopied: ClassVar[str]

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Raises: a copy would be wrong."""
        raise ArgumentTypeError(self._uncopied.format(self))

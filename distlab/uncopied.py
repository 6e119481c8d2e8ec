"""A base class for objects that can't be copied or pickled."""

from __future__ import annotations

from typing import Any, ClassVar

from distlab.errors import ArgumentTypeError


class Uncopied:
    """Base class for objects that can't be copied or pickled.

    Attributes:
      _uncopied: The error's message, with the reason and the remedy. `{0}` is the object.
      _uncopied_error: The class of the error.
    """

    __slots__ = ()
    _uncopied: ClassVar[str]
    _uncopied_error: ClassVar[type[Exception]] = ArgumentTypeError

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Raises: a copy would be wrong."""
        raise self._uncopied_error(self._uncopied.format(self))

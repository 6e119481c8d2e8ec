"""Objects of which a copy would be wrong: they refuse to be copied and pickled, in words."""

from __future__ import annotations

from typing import Any, ClassVar

from distlab.errors import ArgumentTypeError


class Uncopied:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`.

    Attributes:
      _uncopied: What the error says, with the reason and the remedy. `{0}` is the object.
    """

    __slots__ = ()
    _uncopied: ClassVar[str]

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuses: a copy would be wrong."""
        raise ArgumentTypeError(self._uncopied.format(self))

"""Classes of which nobody else has subclasses."""

from __future__ import annotations

from typing import Any

from distlab.errors import ArgumentTypeError


class Sealed:
    """Refuses subclasses that are not distlab's: verbs and JAX know these objects by their class.

    They would take an object of another class for something else, and without an error.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Checks that the class is one of distlab's."""
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("distlab."):
            base = next(b.__name__ for b in cls.__mro__ if b.__module__.startswith("distlab."))
            raise ArgumentTypeError(
                f"{base} can't have subclasses, such as {cls.__name__}: verbs know it by its "
                "class. Make a class of your own that holds one in an attribute."
            )

"""A value that may be missing, as the last `get_next_as_optional` gives it."""

from __future__ import annotations

from typing import Any, final

from distlab.errors import InvalidArgumentError


@final
class Optional:
    """The next element of an iterator, or nothing (`tf.experimental.Optional`).

    `from_value` and `empty` make one.
    """

    __slots__ = ("_value",)

    def __init__(self, *value: Any) -> None:
        self._value = value

    @staticmethod
    def from_value(value: Any) -> Optional:
        """Returns an optional that has a value."""
        return Optional(value)

    @staticmethod
    def empty(element_spec: Any = None) -> Optional:
        """Returns an optional without a value.

        Args:
          element_spec: taken for TensorFlow's sake.
        """
        del element_spec
        return Optional()

    def has_value(self) -> bool:
        """Says whether there is a value."""
        return bool(self._value)

    def get_value(self) -> Any:
        """Returns the value.

        Raises:
          InvalidArgumentError: there is none.
        """
        if not self._value:
            raise InvalidArgumentError(
                "This optional is empty: the data came to its end. Ask has_value() first."
            )
        return self._value[0]

    def __repr__(self) -> str:
        """Says whether there is a value, without showing it."""
        return f"Optional({'with a value' if self._value else 'empty'})"

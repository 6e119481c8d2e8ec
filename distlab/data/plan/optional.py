"""Optional: the result of `get_next_as_optional`, empty at the end of the data."""

from __future__ import annotations

from typing import Any, final

from distlab.errors import InvalidArgumentError


@final
class Optional:
    """The next element of an iterator, or nothing (`tf.experimental.Optional`).

    `from_value` and `empty` make one.

    Example:
      >>> import distlab as dl
      >>> iterator = iter(dl.data.Dataset.range(1))
      >>> iterator.get_next_as_optional().has_value()
      True
      >>> iterator.get_next_as_optional()
      Optional(empty)
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
          element_spec: Ignored; accepted for compatibility with TensorFlow.
        """
        del element_spec
        return Optional()

    def has_value(self) -> bool:
        """Returns whether there is a value."""
        return bool(self._value)

    def get_value(self) -> Any:
        """Returns the value.

        Raises:
          InvalidArgumentError: The optional is empty.
        """
        if not self._value:
            raise InvalidArgumentError(
                "This optional is empty, because the data has ended. Call has_value() first."
            )
        return self._value[0]

    def __repr__(self) -> str:
        """Returns whether there is a value, as text."""
        return f"Optional({'with a value' if self._value else 'empty'})"

"""Fields of options: their types, their defaults, and how two sets of them are merged."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

from distlab.errors import ArgumentTypeError, NoEffectWarning, OptionError
from distlab.text.shown import shown

T = TypeVar("T")

_log: Final = logging.getLogger("distlab")
_reported: set[str] = set()
"""The fields whose missing effect this process has reported."""


class Field(Generic[T]):
    """A field of a class of options.

    `no_effect` is the reason why a field has none, and empty for one that has; `already` is
    the value that asks for what distlab does in any case.
    """

    def __init__(
        self,
        kind: type[Any],
        default: Callable[[], T],
        *,
        no_effect: str = "",
        already: Any = None,
    ) -> None:
        self.name = self._owner = ""
        self._kind, self.default = kind, default
        self._no_effect, self._already = no_effect, already

    def __set_name__(self, owner: type[OptionFields], name: str) -> None:
        """Notes its name; a second one, a former name of tf.data, means the same field."""
        if not self.name:
            self.name, self._owner = name, owner.__name__

    @overload
    def __get__(self, options: None, owner: type[OptionFields]) -> Field[T]: ...

    @overload
    def __get__(self, options: OptionFields, owner: type[OptionFields]) -> T: ...

    def __get__(self, options: OptionFields | None, owner: type[OptionFields]) -> T | Field[T]:
        """Returns the value."""
        if options is None:
            return self
        return cast(T, vars(options).setdefault(self.name, self.default()))

    def __set__(self, options: OptionFields, value: T) -> None:
        """Sets the value."""
        called = f"{self._owner}.{self.name}"
        if not isinstance(value, self._kind):
            raise ArgumentTypeError(
                f"{called} must be of type {self._kind.__name__}, as in tf.data, got "
                f"{shown(value)} of type {type(value).__name__}. Leave the field as it is for the "
                "default."
            )
        vars(options)[self.name] = value
        if self._no_effect and value != self._already and called not in _reported:
            _reported.add(called)
            warnings.warn(
                f"{called} has no effect: {self._no_effect}. It is accepted for compatibility "
                "with TensorFlow.",
                NoEffectWarning,
                stacklevel=3,
            )


class OptionFields:
    """Options with the fields of its class; setting another one is an AttributeError."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field."""
        if "_frozen" in vars(self):
            raise OptionError(
                "A change of the result of dataset.options() has no effect on the dataset, got "
                f"{type(self).__name__}.{name} = {shown(value)}. Set it in a "
                "distlab.data.Options() and pass that to dataset.with_options."
            )
        if not isinstance(getattr(type(self), name, None), Field):
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; it has "
                + ", ".join(field for field, _ in self._fields())
            )
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        """Returns whether all fields are equal."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in self._fields())

    def __repr__(self) -> str:
        """Shows the fields that are set."""
        fields = (f"{name}={shown(value)}" for name, value in sorted(self._set_values()))
        return f"{type(self).__name__}({', '.join(fields)})"

    def merge(self, options: Self) -> Self:
        """Returns these options, overridden by those of others that are set.

        As in TensorFlow, a field with its default value counts as not set, and lists
        are joined.

        Args:
          options: The others, of the same class.

        Raises:
          ArgumentTypeError: They are of another class.
        """
        if type(options) is not type(self):
            raise ArgumentTypeError(
                f"{type(self).__name__} can be merged with {type(self).__name__} only, got "
                f"{type(options).__name__}. Make one with distlab.data.{type(self).__name__}()."
            )
        result = copy.deepcopy(self)
        values, own = vars(result), dict(self._set_values())
        for name, later in options._set_values():
            earlier = values.get(name) if name in own else None
            if isinstance(earlier, OptionFields):
                values[name] = earlier.merge(later)
            elif isinstance(earlier, list):
                values[name] = [*earlier, *later]
            else:
                if earlier is not None and earlier != later:
                    _log.warning("The option %s changes from %r to %r.", name, earlier, later)
                values[name] = copy.deepcopy(later)
        return result

    def frozen(self) -> Self:
        """Returns a copy that can't be changed."""
        result = copy.deepcopy(self)
        for name, _ in result._fields():
            value = getattr(result, name)
            if isinstance(value, OptionFields):
                vars(result)[name] = value.frozen()
        vars(result)["_frozen"] = True
        return result

    def _set_values(self) -> Iterator[tuple[str, Any]]:
        """Yields the fields whose values are not the default ones."""
        for name, field in self._fields():
            if name in vars(self) and vars(self)[name] != field.default():
                yield name, vars(self)[name]

    @classmethod
    def _fields(cls) -> Iterator[tuple[str, Field[Any]]]:
        for name, field in vars(cls).items():
            if isinstance(field, Field) and field.name == name:
                yield name, field

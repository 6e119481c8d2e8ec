"""The attributes of objects, in their `__dict__` or in slots, read without the user's Python."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from types import MappingProxyType, MemberDescriptorType
from typing import Any, Final

from distlab.values.attributes import attribute

MISSING: Final = object()
"""What an object has in the place of an attribute that is not there."""

_ELEMENTS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    dict: dict.values,
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
    deque: deque.__iter__,
    MappingProxyType: MappingProxyType.values,
}

CONTAINERS: Final = tuple(_ELEMENTS)
"""Classes whose elements are looked at; derived ones are containers, too."""


@functools.lru_cache(4096)
def is_container(kind: Any) -> bool:
    """Returns whether a class is one of a container, or derived from one."""
    return issubclass(kind, CONTAINERS)


@functools.lru_cache(4096)
def slots_of(kind: Any) -> dict[str, Any]:
    """Returns the slots of a class by their names: the descriptors that read them."""
    return {
        name: member
        for base in reversed(kind.__mro__)
        if "__slots__" in base.__dict__
        for name, member in base.__dict__.items()
        if isinstance(member, MemberDescriptorType)
    }


def attributes_of(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object by their names; what is returned must not be changed."""
    attributes = attribute(value, "__dict__")
    if type(attributes) is not dict:
        attributes = {}
    kind: Any = type(value)
    slots = slots_of(kind)
    if not slots:
        return attributes
    filled = ((name, _slot(value, slot)) for name, slot in slots.items())
    return {**attributes, **{name: held for name, held in filled if held is not MISSING}}


def has_attributes(value: Any) -> bool:
    """Returns whether an object may have attributes of its own."""
    kind: Any = type(value)
    return type(attribute(value, "__dict__")) is dict or bool(slots_of(kind))


def named_attributes(value: Any, names: dict[str, None]) -> list[str]:
    """Returns which names are those of an object's own attributes."""
    kind: Any = type(value)
    attributes = attribute(value, "__dict__")
    found = [n for n in list(attributes) if n in names] if type(attributes) is dict else []
    return found + [n for n in slots_of(kind) if n in names]


def own_attribute(value: Any, name: str) -> Any:
    """Returns an attribute of an object; MISSING if it has none of its own."""
    attributes = attribute(value, "__dict__")
    if type(attributes) is dict and name in attributes:
        return attributes[name]
    kind: Any = type(value)
    slot = slots_of(kind).get(name)
    return MISSING if slot is None else _slot(value, slot)


def _slot(value: Any, slot: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:  # nothing was assigned to it
        return MISSING


def elements_of(container: Any) -> Iterable[Any]:
    """Returns the elements of a container, of a mapping the values; nothing for others."""
    for kind, elements in _ELEMENTS.items():
        if isinstance(container, kind):
            return elements(container)
    return ()

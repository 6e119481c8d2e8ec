"""Which numbers and arrays changed of those to which a function refers, in words."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np

from distlab.step.functions.keys import Arrays, Id, Key, Other
from distlab.text.shown import shown

_NUMBERS: Final = (int, float, complex, np.generic)
_ARRAYS: Final = (np.ndarray, jax.Array)


def changed_values(before: dict[str, Key], after: dict[str, Key]) -> list[str]:
    """Returns the numbers and arrays that changed, such as `"rate: 0.1 -> 0.2"`.

    Other changes are left out: functions that refer to another model, or in another mode,
    are different functions.
    """
    return [
        f"{name}: {_text(before[name])} -> {_text(key)}"
        for name, key in after.items()
        if name in before and _value_changed(before[name], key)
    ]


def _value_changed(before: Key, after: Key) -> bool:
    if before == after:
        return False
    if isinstance(after, Arrays):
        return True
    if isinstance(after, Other):  # else it may be the model of another trainer
        return isinstance(before, Other) and before[0] == after[0]
    if not (isinstance(before, tuple) and isinstance(after, tuple)):
        return isinstance(after, _NUMBERS) and not isinstance(after, bool | Id)
    match before, after:
        case (type() as one, Id()), (type() as other, Id()):
            return issubclass(one, _ARRAYS) and issubclass(other, _ARRAYS)
        case (type(), Id() as one_id, *_), (type(), Id() as other_id, *_) if one_id != other_id:
            before, after = _without_reached(before), _without_reached(after)
    return len(before) == len(after) and any(map(_value_changed, before, after))


def _without_reached(key: Key) -> Key:
    """Returns an object's key without arrays in attributes of attributes: its model's own."""
    return [
        part
        for part in key
        if not (type(part) is tuple and type(part[-1]) is Arrays and "." in str(part[0]))
    ]


def _text(key: Key) -> str:
    match key:
        case (type() as kind, Id(), *attributes):
            held = ", ".join(f"{name}={_held(value)}" for name, value in attributes)
            name = "array" if issubclass(kind, _ARRAYS) else kind.__name__
            article = "an" if name[:1] in "AEIOUaeiou" else "a"
            return f"{article} {name}" + (f" with {held}" if held else "")
        case (type(), constant) if not isinstance(constant, tuple):
            return f"{shown(constant, 40)}"
        case _:
            return "other contents"


def _held(attribute: Any) -> str:
    if isinstance(attribute, Arrays):
        return "arrays"
    if isinstance(attribute, Other):
        return f"a {attribute[1].__name__}"
    constant = len(attribute) == 2 and not isinstance(attribute[1], tuple)
    return shown(attribute[1], 40) if constant else "other contents"

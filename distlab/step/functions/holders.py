"""Objects of other libraries that hold arrays and are changed in place.

Such an object can't be an argument of `run`: the function's Python runs when it is compiled,
so what it does to the object would be done once, with tracers, or be lost. Those of Flax NNX
can, as `step.in_place` sees to it; other verbs refuse them, too.
"""

from __future__ import annotations

import sys
from typing import Any, Final
from weakref import WeakKeyDictionary

import jax

from distlab.errors import ArgumentTypeError

_PACKAGES: Final = frozenset({"keras", "tf_keras", "tensorflow", "torch"})
_MARKS: Final = ("assign", "state_dict", "variables", "numpy")
"""Methods and properties of the classes in these packages whose instances hold arrays."""

_WAYS_OUT: Final = {
    "tf_keras": "NumPy arrays of its weights, {name}.get_weights()",
    "tensorflow": "NumPy arrays, {name}.numpy()",
    "torch": "NumPy arrays, {name}.detach().cpu().numpy() or those of {name}.state_dict()",
}


def is_state_holder(value: Any) -> bool:
    """Returns whether an object is one of another library that is changed in place."""
    return library_of(value) is not None


def is_nnx_state(value: Any) -> bool:
    """Returns whether a value is the state of an NNX object, which is a pytree of arrays."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.State)


def is_equinox_module(value: Any) -> bool:
    """Returns whether a value is an Equinox module, whose Python numbers are no parameters."""
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(value, equinox.Module)


def refusal(value: Any, name: str) -> str:
    """Returns the error for a state holder as an argument of `run`."""
    library = library_of(value)
    name_of_it = name if name.isidentifier() else "model"
    if library == "flax.nnx":
        return (
            f"{name} is a flax.nnx {type(value).__name__}, which is changed in place. Pass it to "
            "run as it is, in args=(...): run holds one copy for all replicas, and updates it."
        )
    if library == "keras":
        return (
            f"{name} is a keras {type(value).__name__}, which is changed in place. Leave it out of "
            "args: the function uses it from outside, where strategy.scope() made it."
        )
    way_out = _WAYS_OUT[str(library)].format(name=name_of_it)
    return (
        f"{name} is a {library} {type(value).__name__}, which holds arrays and is changed in "
        "place: run compiles the function, so no such change would be kept. Pass "
        f"{way_out}."
    )


def require_no_state_holder(nest: Any, what: str) -> None:
    """Checks that no object in a nest is changed in place."""
    for part in jax.tree.leaves(nest, is_leaf=lambda v: is_nnx_state(v) or is_state_holder(v)):
        if is_state_holder(part):
            raise ArgumentTypeError(refusal(part, what))


# Weakly, as a class may hold whatever its methods refer to.
_libraries: Final[WeakKeyDictionary[type, str]] = WeakKeyDictionary()


def library_of(value: Any) -> str | None:
    """Returns the library whose objects like this one are changed in place; None for others."""
    kind = type(value)
    library = _libraries.get(kind)
    if library is None:
        library = _libraries[kind] = _library_of(kind)
    return library or None


def _library_of(kind: type) -> str:
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and issubclass(kind, _nnx_classes(nnx)):
        return "flax.nnx"
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__} & _PACKAGES
    if packages and any(hasattr(kind, mark) for mark in _MARKS):
        return min(packages)
    return ""


def _nnx_classes(nnx: Any) -> tuple[type, ...]:
    names = ("Pytree", "Object", "Variable")  # Object until Flax 0.11
    found = (getattr(nnx, name, None) for name in names)
    return tuple(kind for kind in found if isinstance(kind, type))

"""The arguments of a jitted function, as far as they make programs, and how they changed."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from distlab import events
from distlab.devices import selection
from distlab.devices.jax_internals import ConcreteArray
from distlab.meshes.blocks import full_spec, spec_text
from distlab.observing.compilations import Compilation
from distlab.step.arguments.names import argument_label, is_array, parameter_names
from distlab.text.shown import shown
from distlab.values.last_batches import LastBatches

Path = tuple[Any, ...]

_MOST_CHANGES: Final = 3

placed_batches: Final = LastBatches()
"""The batches that were placed on meshes, by which a step counts its examples."""


class Leaf(NamedTuple):
    """A leaf of the arguments: two that are equal can't make two programs.

    Attributes:
      what: Its type, such as `float32[8,4]`, or the text of a value that is no array.
      where: Its placement: `P('data')`, a device, `uncommitted` or `NumPy`; empty for values.
      value: A Python number, which makes programs only where it is static; else None.
    """

    what: str
    where: str
    value: complex | None = None

    def __str__(self) -> str:
        """Is its text in events."""
        return f"{self.what} {self.where}".rstrip()


def described(fn: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, tuple[Path, Leaf]]:
    """Returns the path and the description of each leaf by its name, such as `state['w']`."""
    names = parameter_names(fn, len(args))
    leaves, _ = jax.tree_util.tree_flatten_with_path((args, kwargs))
    return {argument_label(path, names): (path, leaf_of(leaf)) for path, leaf in leaves}


def leaf_of(leaf: Any) -> Leaf:
    """Describes one leaf, also of a deleted array."""
    if isinstance(leaf, jax.Array):
        shape = ", ".join(map(str, leaf.shape))
        weak = " weak" if getattr(leaf.aval, "weak_type", False) else ""
        return Leaf(f"{leaf.dtype}[{shape}]{weak}", _placement(leaf))
    if is_array(leaf):
        kind = "NumPy" if isinstance(leaf, np.ndarray | np.generic) else type(leaf).__name__
        return Leaf(f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]", kind)
    if isinstance(leaf, bool | int | float | complex):
        return Leaf(type(leaf).__name__, "", leaf)
    return Leaf(shown(leaf, 80), "")


def _placement(array: jax.Array) -> str:
    if not array.committed:
        return "uncommitted"
    sharding = array.sharding
    if isinstance(sharding, NamedSharding):
        return spec_text(full_spec(sharding.spec, array.ndim))
    if len(sharding.device_set) == 1:
        return selection.name(next(iter(sharding.device_set)))
    return shown(sharding, 80)


def sign(leaf: Any) -> Any:
    """Returns the traits of a leaf that make programs, for each call: without any text."""
    if type(leaf) is ConcreteArray:
        return leaf.aval, leaf.sharding, leaf.committed
    if is_array(leaf):
        return type(leaf), leaf.shape, leaf.dtype
    return type(leaf) if isinstance(leaf, int | float | complex) else shown(leaf, 80)


def cause_of(now: dict[str, Leaf], before: list[dict[str, Leaf]]) -> tuple[str, str]:
    """Returns why a program was compiled: the cause, and what differs from the nearest before."""
    if not before:
        return "new function", ""
    nearest = min(reversed(before), key=lambda old: distance(now, old))
    gone = sorted(now.keys() ^ nearest.keys())
    if gone:
        return "new structure", f"{', '.join(gone[:_MOST_CHANGES])} added or removed"
    pairs = {name: (nearest[name], leaf) for name, leaf in now.items() if nearest[name] != leaf}
    if changed := {n: (a, b) for n, (a, b) in pairs.items() if a.what != b.what}:
        shapes = all("[" in old.what and "[" in new.what for old, new in changed.values())
        cause = "new shapes" if shapes else "new structure"
        return cause, _listed({n: (a.what, b.what) for n, (a, b) in changed.items()})
    if changed := {n: (a, b) for n, (a, b) in pairs.items() if a.where != b.where}:
        return "new sharding", _listed({n: (a.where, b.where) for n, (a, b) in changed.items()})
    if pairs:
        return "new structure", _listed(
            {n: (shown(a.value), shown(b.value)) for n, (a, b) in pairs.items()}
        )
    return "new structure", "JAX's configuration, its mesh in force, or cleared caches"


def compile_event(
    made: Compilation | None, why: tuple[str, str], leaves: dict[str, Leaf], **contents: Any
) -> events.Compile:
    """Makes the event of a program; `made` is None for one that was compiled before."""
    return events.Compile(
        time_ns=time.monotonic_ns(),
        cause=why[0],
        changed=why[1],
        arguments=[f"{name}: {leaf}" for name, leaf in leaves.items()],
        mode="traced",
        trace_ns=round(1e9 * (made.trace_s + made.lower_s)) if made else 0,
        compile_ns=round(1e9 * made.compile_s) if made else 0,
        **contents,
    )


def distance(now: dict[str, Leaf], old: dict[str, Leaf]) -> float:
    """Returns in how many leaves two calls differ, the values of numbers aside."""
    if now.keys() != old.keys():
        return math.inf
    return sum(old[name][:2] != leaf[:2] for name, leaf in now.items())


def _listed(changed: dict[str, tuple[str, str]]) -> str:
    texts = [f"{name}: {old} -> {new}" for name, (old, new) in changed.items()]
    if (more := len(texts) - _MOST_CHANGES) > 0:
        # Of a state whose arrays all changed alike, their number says more than their names.
        texts[_MOST_CHANGES - 1] += f" (and {more} more)"
    return "; ".join(texts[:_MOST_CHANGES])


def getter(path: Path) -> Callable[[Any], Any] | None:
    """Returns a function that follows a path in a pytree; None for parts without names."""
    gets: list[Callable[[Any], Any]] = []
    for key in path:
        match key:
            case jax.tree_util.SequenceKey(idx=index):
                gets.append(operator.itemgetter(index))
            case jax.tree_util.DictKey(key=name):
                gets.append(operator.itemgetter(name))
            case jax.tree_util.GetAttrKey(name="value"):
                gets.append(_value)
            case jax.tree_util.GetAttrKey(name=name):
                gets.append(operator.attrgetter(name))
            case _:
                return None

    def get(tree: Any) -> Any:
        for one in gets:
            tree = one(tree)
        return tree

    return get


def _value(node: Any) -> Any:
    """Returns the array of a variable; Flax NNX warns of the attribute that its path names."""
    get_value = getattr(node, "get_value", None)
    return node.value if get_value is None else get_value()

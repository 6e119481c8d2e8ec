"""Names of parts of a replica function's arguments and result, for messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax


class StateKey(NamedTuple):
    """The key of an array of objects that are changed in place, in the paths of JAX."""

    label: str  # such as `model.a.kernel`
    argument: int | None  # of the positional argument that holds its object

    def __str__(self) -> str:
        """Is the label."""
        return self.label


BY_POSITION: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def parameters_of_kinds(fn: Callable[..., Any], *kinds: Any) -> tuple[str, ...]:
    """Returns the names of a function's parameters of some kinds."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except Exception:  # noqa: BLE001 - some built-in functions, and any `__getattr__` of the user's
        return ()
    return tuple(p.name for p in parameters if p.kind in kinds)


def parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Returns the names of the first parameters, and `args[i]` for those without one."""
    names = parameters_of_kinds(fn, *BY_POSITION)
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(count)]


def is_array(leaf: Any) -> bool:
    """Returns whether an argument is an array, or stands for one; `np.float32` is none."""
    return hasattr(leaf, "dtype") and isinstance(getattr(leaf, "shape", None), tuple)


def argument_label(path: tuple[Any, ...], names: list[str]) -> str:
    """Returns the name of a leaf of `(args, kwargs)`, such as `x` or `state['w']`."""
    kind, first, *rest = path
    if rest and isinstance(rest[-1], StateKey):
        return rest[-1].label
    name = names[first.idx] if kind.idx == 0 else str(first.key)
    return name + jax.tree_util.keystr(tuple(rest))


class Declared(NamedTuple):
    """A part of the result that must be the same on all replicas."""

    label: str  # such as `result['w']`
    in_place: bool  # an array of an object that is changed in place

    def refusal(self, why: str) -> str:
        """Returns the message for a value that is not the same, or not provably so."""
        reduce = "distlab.get_replica_context().all_reduce first"
        if self.in_place and self.label.rpartition(".")[2].startswith("cache"):
            return (
                f"{self.label} is changed in place and must stay the same on all replicas, but "
                f"{why}. Make the cache an argument and a result of the step: "
                "graph, cache, rest = nnx.split(model, nnx.Cache, ...), and return "
                "nnx.state(model, nnx.Cache)."
            )
        if self.in_place:
            return (
                f"{self.label} is changed in place and must stay the same on all replicas, but "
                f"{why}. Pass the gradients, or whatever it is computed from, to {reduce}."
            )
        return (
            f"{self.label} is returned as Mirrored, the same on all replicas, but {why}. Pass it, "
            f"or the gradients that it is computed from, to {reduce}, or return it without "
            "Mirrored."
        )


def parent(label: str) -> str:
    """Returns the label of what holds a part of an argument; empty for the argument itself."""
    return label.rpartition("[")[0] if label.endswith("]") else label.rpartition(".")[0]


def declared(path: tuple[Any, ...]) -> Declared:
    """Returns how a part of the result is named, by its path in it."""
    if path and isinstance(path[-1], StateKey):
        return Declared(path[-1].label, in_place=True)
    return Declared(f"result{jax.tree_util.keystr(path)}", in_place=False)

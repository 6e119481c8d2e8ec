"""The inputs of a program: the values of variables and the arguments, as arrays on the mesh."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from distlab.context.host import Host
from distlab.devices.jax_internals import ConcreteArray
from distlab.devices.pieces import is_divided
from distlab.errors import ArgumentValueError, DonatedError
from distlab.step.arguments.leaves import Arguments, Leaf
from distlab.step.programs.spmd import SpmdFunction
from distlab.values import copy_events
from distlab.values.copy_events import Direction
from distlab.values.stacks import is_stack
from distlab.values.wide_integers import require_kept
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.remote_transfers import RemoteReads


class NotWholeError(Exception):
    """An array needs another program, one that takes the parts that the replicas have of it."""


@final
class ProgramInputs:
    """The inputs of one program, which it places on the mesh."""

    def __init__(self, function: str, arguments: Arguments, spmd: SpmdFunction, host: Host) -> None:
        self.donated = [leaf.donated for leaf in arguments.dynamic()]
        self.donates = any(self.donated)
        self._function = function
        self._leaves = arguments.leaves
        self._dynamic = arguments.dynamic()
        self._mesh = host.mesh
        overwritten = spmd.overwritten
        self.given = [v in overwritten and v.storage.layout.is_over(host.mesh) for v in spmd.read]
        self.gives = any(self.given)
        self._local = [
            (variable.storage, given)
            for variable, given in zip(spmd.read, self.given, strict=True)
            if not isinstance(variable.storage, RemoteStorage)
        ]
        remote = [
            (variable.storage, (variable.shape, np.dtype(variable.dtype)))
            for variable in spmd.read
            if isinstance(variable.storage, RemoteStorage)
        ]
        self._remote = RemoteReads(remote) if remote else None
        self._remotes = _named([v.name for v in spmd.read if isinstance(v.storage, RemoteStorage)])
        self._is_remote = [isinstance(v.storage, RemoteStorage) for v in spmd.read]
        self._strategy = host.number
        self.all_split = all(leaf.role == "split" for leaf in arguments.leaves)
        self._copies: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}

    def values(self, *, keep: bool) -> tuple[list[jax.Array], list[jax.Array]]:
        """Returns the values of the variables on the mesh; emits a copy where one had to move."""
        kept: list[jax.Array] = []
        given: list[jax.Array] = []
        if not self._is_remote:
            return kept, given
        started = time.monotonic_ns()
        # First, since it may fail.
        pulled = [] if self._remote is None else self._pulled(self._remote)
        if self._remote is not None:
            self._emit_copy(self._remotes, "to_devices", self._remote.nbytes, started)
        moved: list[tuple[str, int]] = []
        for storage, is_given in self._local:
            if is_given:
                given.append(storage.give(keep=keep))
                continue
            value, copied = storage.over(self._mesh)
            kept.append(value)
            if copied:
                moved.append((storage.name, value.nbytes))
        if moved:
            names, sizes = zip(*moved, strict=True)
            self._emit_copy(_named(names), "between_devices", sum(sizes), started)
        return [*kept, *pulled], given

    def examples(self) -> tuple[list[jax.Array], list[jax.Array]]:
        """Returns arrays of the shapes and on the devices of those that `values` returns."""
        arrays = [(storage.over(self._mesh)[0], given) for storage, given in self._local]
        kept = [array for array, given in arrays if not given]
        if self._remote is not None:
            kept += self._pulled(self._remote)
        return kept, [array for array, given in arrays if given]

    def names(self) -> list[str] | None:
        """Returns the names of the program's arrays; None with variables of other processes."""
        if self._remote is not None:
            return None
        stored = [(storage.name, given) for storage, given in self._local]
        leaves = [(leaf.label, leaf.donated) for leaf in self._dynamic]
        groups = (sorted(group, key=lambda one: one[1]) for group in (stored, leaves))
        return [name for group in groups for name, _ in group]

    def in_order(self, kept: list[Any], given: list[Any]) -> list[Any]:
        """Returns the values of the variables, in the order of `SpmdFunction.read`."""
        if self._remote is None:
            return merged(self.given, kept, given)
        own = len(self._local) - len(given)
        given_local = [given for _, given in self._local]
        local = merged(given_local, kept[:own], given)
        return merged(self._is_remote, local, self._remote.divide(kept[own:]))

    def _pulled(self, remote: RemoteReads) -> list[jax.Array]:
        """Returns what holds the present values of variables of other processes, on the mesh."""
        pulled: list[jax.Array] = jax.device_put(remote.read(), self._mesh.whole)
        return pulled

    def arrays(self, leaves: list[Any]) -> list[Any]:
        """Returns the dynamic ones of the flat arguments, with whole ones on the mesh."""
        return [
            self._whole(position, leaf, value)
            if leaf.role == "whole"
            else self._from_host(leaf, value)
            if type(value) is np.ndarray
            else value
            for position, (leaf, value) in enumerate(zip(self._leaves, leaves, strict=True))
            if leaf.role != "static"
        ]

    def dynamic(self, leaves: list[Any]) -> list[Any]:
        """Returns the dynamic ones of the flat arguments, where they are."""
        return [
            value for leaf, value in zip(self._leaves, leaves, strict=True) if leaf.role != "static"
        ]

    def on_mesh(self, arrays: list[Any]) -> list[Any]:
        """Moves arrays of other devices, from user code or another strategy, to the mesh."""
        return [
            self._on_all(array, leaf)
            if leaf.role == "whole"
            else _put(array, self._mesh.split, leaf)
            for array, leaf in zip(arrays, self._dynamic, strict=True)
        ]

    def are_placed(self, arrays: list[Any]) -> bool:
        """Returns whether all arrays are where the program was compiled for."""
        places = {"whole": self._mesh.whole, "split": self._mesh.split}
        pairs = zip(arrays, self._dynamic, strict=True)
        return all(a.sharding.is_equivalent_to(places[leaf.role], a.ndim) for a, leaf in pairs)

    def _on_all(self, array: Any, leaf: Leaf) -> jax.Array:
        """Puts an array on each device; of several workers, each puts its own."""
        if not self._mesh.shared:
            return _put(array, self._mesh.whole, leaf)
        return self._mesh.put_whole(jnp.copy(array) if leaf.donated else array)

    def by_donation(self, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the arrays that are kept, and the donated ones."""
        if not self.donates:
            return arrays, []
        pairs = list(zip(arrays, self.donated, strict=True))
        return [array for array, d in pairs if not d], [array for array, d in pairs if d]

    def require_alive(self, leaves: list[Any]) -> None:
        """Checks that no array of the flat arguments was deleted or is donated twice."""
        seen: dict[int, Leaf] = {}
        for leaf, array in zip(self._leaves, leaves, strict=True):
            if not isinstance(array, ConcreteArray):
                continue
            if array.is_deleted():
                raise DonatedError(
                    f"{leaf} was deleted, or donated to an earlier call, so it can't be used "
                    "again. Use the result of that call, or leave donate_argnums out of it."
                )
            other = seen.setdefault(id(array), leaf)
            if other is not leaf and (leaf.donated or other.donated):
                raise DonatedError(
                    f"{other.label} and {leaf.label} are one array, and donate_argnums donates "
                    "it. Pass a copy of one of them, or leave donate_argnums out."
                )

    def _whole(self, position: int, leaf: Leaf, value: Any) -> Any:
        """Returns a value that all replicas receive, on the mesh; emits a copy if it moved."""
        copy = self._copies.get(position)
        if copy is not None and copy[0]() is value:
            return copy[1]
        if isinstance(value, jax.Array) and value.sharding == self._mesh.whole:
            return value
        started = time.monotonic_ns()
        if self._mesh.replicas > 1 and (is_stack(value) or is_divided(value)):
            raise NotWholeError
        require_kept(value, leaf.label, ArgumentValueError)
        from_host = isinstance(value, np.ndarray)
        if from_host:
            value = value.copy()  # JAX may share the buffer, and the user may write to it
        placed = self._on_all(value, leaf)
        if from_host or isinstance(value, ConcreteArray):
            direction: Direction = "to_devices" if from_host else "between_devices"
            self._emit_copy(f"argument {leaf.label}", direction, value.nbytes, started)
        if isinstance(value, ConcreteArray) and not leaf.donated:
            # Arrays never change, so one copy serves for as long as the array lives.
            forget = functools.partial(self._forget, position)
            self._copies[position] = (weakref.ref(value, forget), placed)
        return placed

    def _from_host(self, leaf: Leaf, rows: np.ndarray) -> jax.Array:
        """Puts the rows of a batch that was left on the host on their devices."""
        require_kept(rows, leaf.label, ArgumentValueError)
        started = time.monotonic_ns()
        placed = _put(rows, self._mesh.split, leaf)
        self._emit_copy(f"batch {leaf.label}", "to_devices", rows.nbytes, started)
        return placed

    def _forget(self, position: int, dead: weakref.ref[jax.Array]) -> None:
        copy = self._copies.get(position)
        if copy is not None and copy[0] is dead:
            del self._copies[position]

    def _emit_copy(self, what: str, direction: Direction, size: int, started: int) -> None:
        copy_events.announce(
            self._strategy,
            f"{what} of {self._function}",
            direction,
            size=size,
            copies=self._mesh.replicas,
            started=started,
        )


def _named(variables: Sequence[str]) -> str:
    """Returns what an event calls variables: the first one's name, and how many more there are."""
    if len(variables) == 1:
        return f"variable {variables[0]}"
    return f"variables {variables[0]} and {len(variables) - 1} more" if variables else ""


def merged(second: list[bool], ones: list[Any], others: list[Any]) -> list[Any]:
    """Returns the elements of two lists in the order that `second` gives."""
    from_ones, from_others = iter(ones), iter(others)
    return [next(from_others if of_others else from_ones) for of_others in second]


def _put(array: Any, sharding: NamedSharding, leaf: Leaf) -> jax.Array:
    """Puts an array on its devices; a donated one as a copy."""
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    # device_put may share the array's memory on the device that has it already.
    return jax.device_put(jnp.copy(array) if leaf.donated else array, sharding)

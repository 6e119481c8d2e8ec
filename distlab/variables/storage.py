"""The storage of a variable: its array, in the variable's layout.

A step that overwrites a variable may put the new value into the old one's memory, as long as
nobody else can use the old one. The storage knows: who reads its array may keep it, and what a
program computed and nobody read is its own. Of what was read, the step receives a copy: of the
first piece where only that was read, as by `Variable.value`, so that a read costs little.
"""

from __future__ import annotations

import threading
import weakref
from typing import ClassVar, Final, final

import jax
import numpy as np

from distlab.devices import jax_internals, selection
from distlab.devices.jax_internals import plain, with_copies
from distlab.devices.layouts import Layout
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import DonatedError
from distlab.processes import group
from distlab.processes.boundary import verb
from distlab.text.shown import shown

giving: Final = threading.RLock()
"""Held while arrays are read or changed, and while a step takes over the memory of some. Who holds
it takes no other lock: `in_flight.dispatching` is taken before it."""


class _Changes:
    """The number of times that the copies of a storage came apart, or met again."""

    last = 0


changes: Final = _Changes()


@final
class Storage:
    """The array of a variable.

    `apart` where copies that should be equal may differ, as one was assigned alone; `own_copies`
    where each replica keeps its own by design, as Keras' batch statistics; `changing` is held from
    a read to the assignment that rests on it; `version` counts changes on a server.
    """

    __slots__ = (
        *("_array", "_coming", "_first_read", "_own", "apart", "layout", "name", "own_copies"),
        "version",
    )

    changing: ClassVar = giving

    def __init__(self, value: jax.Array, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name
        self._array = layout.place(value)
        self._own = False  # `place` may share the value's memory
        self._first_read = True
        self.apart = False
        self.own_copies = False
        self.version = 0
        self._coming: tuple[list[list[jax.Array]], int] | None = None

    @property
    def array(self) -> jax.Array:
        """The value, `(replicas, ...)` when the copies may differ. The reader may keep it."""
        with giving:
            self._settle()
            self._own = False
            return self._array

    @array.setter
    def array(self, array: jax.Array) -> None:
        with giving:
            self._settle()
            self._own = False
            self._array = self.layout.pinned(array)

    @property
    def nbytes(self) -> int:
        """The bytes of all copies in this process."""
        return int(self._array.nbytes)

    def alive(self) -> jax.Array:
        """Returns the value, which still has its memory."""
        array = self.array
        self._require_alive()
        return array

    def duplicate(self) -> Storage:
        """Returns another storage with the same value and layout."""
        new = object.__new__(Storage)
        new.layout, new.name, new._array = self.layout, self.name, self.alive()
        new._own, new._first_read, new._coming, new.apart = False, True, None, self.apart
        new.own_copies = self.own_copies
        new.version = 0
        return new

    def same_layout(self, other: object) -> bool:
        """Returns whether both have a copy of one value on each of the same devices."""
        equal = not (self.layout.copies_differ or self.layout.one_copy)
        if not equal or not isinstance(other, Storage):
            return False
        return self.array.sharding == other.array.sharding

    @verb
    def copies(self) -> dict[int, jax.Array]:
        """Returns the copies in this process by replica, each on its own device."""
        return self.layout.copies(self.alive())

    def first(self) -> jax.Array:
        """Returns the first copy in this process. The reader may keep it."""
        with giving:
            self._settle()
            self._require_alive()
            self._first_read = True
            if self.layout.partition.axis is None:
                return self.layout.first(self._array)
            self._own = False  # what is read has all parts
            array = self._array
        return _read(self.layout, array)  # which may take another lock

    @verb
    def copy(self, replica: int) -> jax.Array:
        """Returns a replica's copy, where it has none in this process the first."""
        return self.layout.copy(self.alive(), replica)

    def device_names(self) -> list[str]:
        """Returns the devices in this process that hold the value, or a part of it."""
        return [selection.name(device) for device in jax_internals.devices_of(self._array)]

    def set_copy(self, replica: int, value: jax.Array) -> None:
        """Replaces one copy and keeps the others."""
        with self.changing:
            array = self.alive()
            self.set_apart(apart=self.layout.partition.axis is None)
            self.array = self.layout.with_copy(array, replica, value)

    def set_apart(self, *, apart: bool) -> None:
        """Notes whether copies that should be equal may differ."""
        if apart is not self.apart:
            self.apart = apart
            changes.last += 1

    def agrees(self) -> bool:
        """Returns whether all copies are equal; where they may differ, it compares them."""
        if self.apart:
            first, *others = (np.asarray(plain(copy)) for copy in self.copies().values())
            if any(copy.tobytes() != first.tobytes() for copy in others):
                return False
            self.set_apart(apart=False)
        return True

    def reference(self) -> weakref.ref[jax.Array]:
        """Returns a reference to the present array, which keeps no memory and reads nothing."""
        self._settle()
        return weakref.ref(self._array)

    def holds(self, reference: weakref.ref[jax.Array] | None) -> bool:
        """Returns whether a reference is to the present array: nobody assigned another since."""
        self._settle()
        return reference is not None and reference() is self._array

    def over(self, mesh: ReplicaMesh) -> tuple[jax.Array, bool]:
        """Returns the value as an argument of a program over `mesh` that keeps it, at once."""
        self._settle()
        self._require_alive()
        array = self.layout.over(self._array, mesh)
        return array, array is not self._array

    def give(self, *, keep: bool) -> jax.Array:
        """Returns an array of the value that a program may overwrite; call it in `giving`.

        With `keep`, the program leaves what it is given, which is the value itself.
        """
        self._settle()
        self._require_alive()
        if keep:
            return self._array
        if not self._own:
            return with_copies(self._array)
        given = (
            with_copies(self._array, self.layout.first_pieces) if self._first_read else self._array
        )
        self._first_read = True  # until `adopt`: a program that fails may have taken it over
        return given

    def expect(self, outputs: list[list[jax.Array]], position: int) -> None:
        """Announces the outputs of a program, found where an interrupt comes before `adopt`."""
        self._settle()
        self._coming = (outputs, position)

    def adopt(self, array: jax.Array) -> None:
        """Stores the output of a program over the mesh, which nobody else has."""
        self._array = self.layout.adopt(array)
        self._own = True
        self._first_read = False
        self._coming = None

    def _require_alive(self) -> None:
        """Checks that the value has its memory; a program that receives it without ends Python."""
        if self._own and not self._first_read:
            return  # nobody else has it
        array = self._array
        if array.is_deleted():
            processes = group.current()
            if processes is not None:
                processes.check()  # the step that took it over failed with a lost worker
            raise DonatedError(
                f"The value of {self.name} was deleted, or donated to another function, so it "
                f"can't be used: {shown(array)}. Pass a copy to a function that takes over its "
                "argument's memory, and assign the variable a new value."
            )

    def _settle(self) -> None:
        """Adopts the outputs of a program that was interrupted before `adopt`."""
        if self._coming is not None and self._coming[0]:
            outputs, position = self._coming
            self.adopt(outputs[0][position])


@verb
def _read(layout: Layout, parts: jax.Array) -> jax.Array:
    """Returns a value of whose parts other processes may have some."""
    return layout.first(parts)

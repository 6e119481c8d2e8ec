"""The storage of a variable whose value is in another process, on a parameter server."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.layouts import OnOneDevice
from distlab.devices.mesh import ReplicaMesh
from distlab.variables.operations import Operation


class Key(NamedTuple):
    """The place of a value: the number of its parameter server, and its own there."""

    server: int
    number: int


Kind: TypeAlias = tuple[tuple[int, ...], np.dtype]
"""The shape and the type of a value."""


class Change(NamedTuple):
    """An operation of a verb in `operations.COMBINE`, with the number of its operands."""

    key: Key
    verb: str
    operands: int


@final
@dataclass(frozen=True, eq=False)
class PackedValues:
    """Values of one server that are read together, again and again."""

    server: int
    keys: tuple[Key, ...]
    kinds: tuple[Kind, ...]


@final
@dataclass(frozen=True, eq=False)
class PackedChanges:
    """Operations of one server that are sent together, in order, with the kind of each operand."""

    server: int
    changes: tuple[Change, ...]
    kinds: tuple[Kind, ...]


class ValueServers(Protocol):
    """The parameter servers, as seen from one process."""

    def make(self, value: np.ndarray, server: int) -> Key:
        """Stores a value on a server."""

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values, by one call of each server."""

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values in this order, by one call of each server."""

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of each part's values, by one call of each server."""

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values, by one call of each server."""

    def forget(self, key: Key) -> None:
        """Frees a value that nothing refers to any more. Never waits."""


@final
class RemoteStorage:
    """The value of a variable on a parameter server, with the interface of `Storage`.

    Every read asks the server, and every change goes there as an operation.
    """

    __slots__ = ("__weakref__", "key", "layout", "name", "servers")

    apart: Final = False
    own_copies: Final = False
    changing: ClassVar[AbstractContextManager[object, None]] = contextlib.nullcontext()

    def __init__(self, servers: ValueServers, key: Key, name: str) -> None:
        self.layout = OnOneDevice(server=key.server)
        self.servers = servers
        self.key = key
        self.name = name

    @classmethod
    def made(cls, servers: ValueServers, value: jax.Array, name: str, server: int) -> RemoteStorage:
        """Returns a new storage, whose value is freed with it."""
        storage = cls(servers, servers.make(np.asarray(value), server), name)
        weakref.finalize(storage, servers.forget, storage.key).atexit = False
        return storage

    @property
    def array(self) -> jax.Array:
        """The present value, on JAX's default device."""
        return jnp.asarray(self.servers.read([self.key])[0])

    @array.setter
    def array(self, array: jax.Array) -> None:
        self.update(Operation("assign", (array,)))

    def update(self, operation: Operation) -> None:
        """Changes the value on the server."""
        self.servers.update([(self.key, operation)])

    def alive(self) -> jax.Array:
        """Returns the present value."""
        return self.array

    def duplicate(self) -> RemoteStorage:
        """Returns another storage with the same value."""
        return self.made(self.servers, self.array, self.name, self.key.server)

    def same_layout(self, other: object) -> bool:
        """Returns False: values travel through this process."""
        del other
        return False

    def copies(self) -> dict[int, jax.Array]:
        """Returns the value as that of replica 0."""
        return {0: self.array}

    def first(self) -> jax.Array:
        """Returns the present value."""
        return self.array

    def copy(self, replica: int) -> jax.Array:
        """Returns the present value."""
        del replica
        return self.array

    def device_names(self) -> list[str]:
        """Returns the name of the parameter server."""
        return [f"ps {self.key.server}"]

    def set_copy(self, replica: int, value: jax.Array) -> None:
        """Replaces the value, whichever replica assigns it."""
        del replica
        self.array = value

    def set_apart(self, *, apart: bool) -> None:
        """Does nothing, as there is one copy."""

    def agrees(self) -> bool:
        """Returns True, as there is one copy."""
        return True

    def reference(self) -> None:
        """Returns None: there is no array here."""

    def holds(self, reference: weakref.ref[jax.Array] | None) -> bool:
        """Returns False: others may assign at any time."""
        del reference
        return False

    def over(self, mesh: ReplicaMesh) -> tuple[jax.Array, bool]:
        """Returns the present value as an argument of a program over `mesh`, copied there."""
        return mesh.put_whole(self.array), True

    def give(self, *, keep: bool) -> jax.Array:
        """Returns the present value, which nobody else has."""
        del keep
        return self.array

    def expect(self, outputs: list[list[jax.Array]], position: int) -> None:
        """Does nothing: programs return operations for the server."""

    def adopt(self, array: jax.Array) -> None:
        """Replaces the value."""
        self.array = array

"""The variables of a program on parameter servers, as few large arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.integrations.dask.values import kinds_text, packed, unpacked
from distlab.variables.remote_storage import (
    Key,
    Kind,
    PackedChanges,
    PackedValues,
    RemoteStorage,
)
from distlab.variables.remote_transfers import RemoteChanges, RemoteReads

SHAPES = st.sampled_from([(), (0,), (1,), (3,), (2, 3)])
DTYPES = st.sampled_from(["float32", "int32", "bool", "bfloat16"])
SERVERS = st.integers(0, 2)
VALUES = st.lists(st.tuples(SHAPES, DTYPES, SERVERS), min_size=1, max_size=12)


class Servers:
    """Servers in this process, which note the changes that they receive."""

    def __init__(self) -> None:
        self.values: dict[Key, np.ndarray] = {}
        self.changes: list[tuple[Key, str, list[np.ndarray]]] = []
        self.calls: list[int] = []

    def storage(self, value: np.ndarray, server: int) -> RemoteStorage:
        key = Key(server, len(self.values))
        self.values[key] = value
        servers: Any = self
        return RemoteStorage(servers, key, "v")

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        self.calls += [part.server for part in parts]
        assert all(key.server == part.server for part in parts for key in part.keys)
        return [
            np.frombuffer(packed([self.values[key] for key in part.keys])[1], np.uint8)
            for part in parts
        ]

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        self.calls += [part.server for part, _ in parts]
        for part, buffer in parts:
            operands = iter(unpacked(kinds_text(part.kinds), buffer))
            for key, verb, count in part.changes:
                assert key.server == part.server
                self.changes.append((key, verb, list(itertools.islice(operands, count))))
            assert not list(operands)


def numbers(shape: tuple[int, ...], dtype: str, first: int) -> np.ndarray:
    return np.asarray(first + np.arange(np.prod(shape, dtype=int)).reshape(shape), jnp.dtype(dtype))


def kind(array: np.ndarray) -> Kind:
    return array.shape, array.dtype


@settings(deadline=None, max_examples=8)
@given(VALUES)
def test_a_program_reads_each_value_as_it_is(
    values: list[tuple[tuple[int, ...], str, int]],
) -> None:
    servers = Servers()
    arrays = [numbers(shape, dtype, n) for n, (shape, dtype, _) in enumerate(values)]
    reads = RemoteReads(
        [
            (servers.storage(array, server), kind(array))
            for array, (*_, server) in zip(arrays, values, strict=True)
        ]
    )
    flat = reads.read()
    assert sorted(servers.calls) == sorted({server for *_, server in values})
    assert reads.nbytes == sum(array.nbytes for array in arrays)
    for found in (reads.divide(flat), jax.jit(reads.divide)(flat)):
        for array, one in zip(arrays, found, strict=True):
            assert kind(np.asarray(one)) == kind(array)
            assert np.array_equal(one, array)


@settings(deadline=None, max_examples=8)
@given(st.data(), VALUES)
def test_the_operations_of_each_value_arrive_in_order(
    data: st.DataObject, values: list[tuple[tuple[int, ...], str, int]]
) -> None:
    servers = Servers()
    arrays = [numbers(shape, dtype, n) for n, (shape, dtype, _) in enumerate(values)]
    storages = [
        servers.storage(array, server) for array, (*_, server) in zip(arrays, values, strict=True)
    ]
    changed = data.draw(
        st.lists(
            st.tuples(st.sampled_from(range(len(values))), st.booleans()), min_size=1, max_size=12
        )
    )
    expected: dict[Key, list[tuple[str, list[np.ndarray]]]] = {}
    changes, operands = [], []
    for n, (position, scattered) in enumerate(changed):
        verb = f"scatter_{n}" if scattered else f"assign_{n}"
        own = [np.arange(n, dtype=np.int32)] * scattered + [arrays[position]]
        changes.append((storages[position], verb, len(own)))
        operands += own
        expected.setdefault(storages[position].key, []).append((verb, own))
    remote = RemoteChanges(changes, [kind(operand) for operand in operands])
    for join in (remote.join, jax.jit(remote.join)):
        servers.calls.clear()
        servers.changes.clear()
        flat = join(operands)
        assert len(flat) == remote.arrays
        remote.send(flat)
        assert sorted(servers.calls) == sorted({key.server for key in expected})
        for key, wanted in expected.items():
            found = [(verb, own) for other, verb, own in servers.changes if other == key]
            assert [verb for verb, _ in found] == [verb for verb, _ in wanted]
            for (_, ours), (_, theirs) in zip(found, wanted, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    assert kind(one) == kind(other)
                    assert np.array_equal(one, other)


def test_values_of_one_type_are_one_array_a_server() -> None:
    servers = Servers()
    arrays = [numbers((2,), dtype, 0) for dtype in ("float32", "int32") * 10]
    storages = [servers.storage(array, n % 2) for n, array in enumerate(arrays * 2)]
    values = [(s, kind(a)) for s, a in zip(storages, arrays * 2, strict=True)]
    assert [len(array) for array in RemoteReads(values).read()] == [40, 40]
    changes = [(storage, "assign", 1) for storage in storages]
    assert RemoteChanges(changes, [kind for _, kind in values]).arrays == 2


@pytest.mark.parametrize("scattered", [0, 1])
def test_operations_on_one_value_are_not_sorted_by_their_types(scattered: int) -> None:
    servers = Servers()
    storage = servers.storage(numbers((3,), "float32", 0), 0)
    rows, value = np.ones((1,), np.float32), np.ones(3, np.float32)
    changes = [(storage, "assign", 1), (storage, "scatter_add", 2), (storage, "assign_add", 1)]
    operands = [value, np.zeros(1, np.int32), rows, value]
    changes, operands = changes[scattered:], operands[scattered:]
    remote = RemoteChanges(changes, [kind(operand) for operand in operands])
    remote.send(remote.join(operands))
    assert [verb for _, verb, _ in servers.changes] == [verb for _, verb, _ in changes]

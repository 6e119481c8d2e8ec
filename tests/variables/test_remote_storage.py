"""Variables whose values are in other processes: few reads, and operations instead of values."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.devices.layouts import OnOneDevice
from distlab.errors import UnsupportedError
from distlab.integrations.dask.values import kinds_text, packed, unpacked
from distlab.strategies.one_device import OneDeviceStrategy
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key, PackedChanges, PackedValues


class Servers:
    """One server in this process, which notes what it is asked."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []
        self.asked: list[tuple[str, ...]] = []
        self.forgotten: list[int] = []

    def make(self, value: np.ndarray, server: int) -> Key:
        self.values.append(np.array(value))
        return Key(server, len(self.values) - 1)

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        self.asked.append(("read", *(str(key.number) for key in keys)))
        return [self.values[key.number].copy() for key in keys]

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        self.asked.append(tuple(f"{change.verb} {key.number}" for key, change in updates))
        for key, change in updates:
            value = jnp.asarray(self.values[key.number])
            self.values[key.number] = np.asarray(change.applied_to(value))

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        (part,) = parts
        return [np.frombuffer(packed(self.read(part.keys))[1], np.uint8)]

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        ((part, buffer),) = parts
        left = iter(unpacked(kinds_text(part.kinds), buffer))
        operations = [
            Operation(change.verb, tuple(itertools.islice(left, change.operands)))
            for change in part.changes
        ]
        keys = [change.key for change in part.changes]
        self.update(list(zip(keys, operations, strict=True)))

    def forget(self, key: Key) -> None:
        self.forgotten.append(key.number)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    return served(monkeypatch)


def served(monkeypatch: pytest.MonkeyPatch) -> Servers:
    """Has variables that are made from now on lie on a server."""
    made = Servers()
    monkeypatch.setattr(OneDeviceStrategy, "value_servers", made)
    layout = OnOneDevice(server=0)
    monkeypatch.setattr(OneDeviceStrategy, "variable_layout", lambda *_, **__: layout)
    return made


@pytest.fixture
def strategy(servers: Servers) -> dl.OneDeviceStrategy:
    return dl.OneDeviceStrategy("CPU:0")


def variable(strategy: dl.OneDeviceStrategy, *numbers: float) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(np.array(numbers, np.float32))


def test_a_step_reads_remote_variables_together(
    strategy: dl.OneDeviceStrategy, servers: Servers
) -> None:
    v, w = variable(strategy, 1.0, 2.0), variable(strategy, 3.0)

    def step(x: jnp.ndarray) -> jnp.ndarray:
        before = v.value().sum() + w.value().sum()
        v.assign_add(x * jnp.ones(2))
        w.assign_sub(jnp.ones(1))
        return before

    assert [float(strategy.run(step, args=(2.0,))) for _ in range(2)] == [6.0, 9.0]
    read, changed = servers.asked[-2:]
    assert (read[0], set(read[1:])) == ("read", {"0", "1"})
    assert changed == ("assign_add 0", "assign_sub 1")
    assert (v.numpy().tolist(), w.numpy().tolist()) == ([5.0, 6.0], [1.0])


def test_a_step_moves_values_of_several_types(strategy: dl.OneDeviceStrategy) -> None:
    with strategy.scope():
        dense = dl.Variable(jnp.ones((2, 3), jnp.bfloat16))
        table = dl.Variable(jnp.zeros((4, 2)))
        count = dl.Variable(0)

    def step() -> jnp.ndarray:
        before = dense.value().sum() + count.value()
        table.scatter_add(dl.IndexedSlices(jnp.ones((2, 2)), jnp.array([1, 3])))
        dense.assign(dense.value() * 2)
        count.assign_add(1)
        table.assign_sub(jnp.full((4, 2), 0.25))
        return before

    assert [float(strategy.run(step)) for _ in range(3)] == [6.0, 13.0, 26.0]
    assert dense.numpy().astype(float).tolist() == [[8.0] * 3] * 2
    assert table.numpy().tolist() == [[-0.75] * 2, [2.25] * 2] * 2
    assert int(count) == 3


def test_a_step_uses_variables_of_this_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")
    steps, factor = variable(strategy, 0.0), variable(strategy, 2.0)
    served(monkeypatch)
    first, second = variable(strategy, 1.0, 1.0), variable(strategy, 5.0)

    def step() -> jnp.ndarray:
        before = first.value().sum() * factor.value() + steps.value() + second.value()
        first.assign_add(jnp.ones(2) * factor.value())
        steps.assign_add(jnp.ones(1))
        return before

    assert [float(strategy.run(step)[0]) for _ in range(3)] == [9.0, 18.0, 27.0]
    assert (steps.numpy().tolist(), first.numpy().tolist()) == ([3.0], [7.0, 7.0])


def test_a_step_sees_its_own_operations(strategy: dl.OneDeviceStrategy) -> None:
    v = variable(strategy, 1.0)

    def step() -> list[jnp.ndarray]:
        seen = [v.value()]
        v.assign_add(jnp.ones(1))
        seen.append(v.value())
        v.assign(jnp.full(1, 10.0))
        v.scatter_add(dl.IndexedSlices(jnp.ones((1,)), jnp.array([0])))
        return [*seen, v.value()]

    assert [float(value[0]) for value in strategy.run(step)] == [1.0, 2.0, 11.0]
    assert v.numpy().tolist() == [11.0]


@pytest.mark.parametrize("eagerly", [False, True])
def test_operations_of_others_are_kept(
    strategy: dl.OneDeviceStrategy, servers: Servers, eagerly: bool
) -> None:
    v = variable(strategy, 0.0)

    def step() -> None:
        v.assign_add(jnp.ones(1))

    dl.run_functions_eagerly(eagerly)
    try:
        strategy.run(step)
        servers.values[0] = servers.values[0] + 100  # another worker's, after this one read
        strategy.run(step)
    finally:
        dl.run_functions_eagerly(False)
    v.assign_add([1.0])
    assert v.numpy().tolist() == [103.0]


def test_a_loop_of_jax_refuses_to_change_a_variable_on_a_server(
    strategy: dl.OneDeviceStrategy,
) -> None:
    v = variable(strategy, 0.0)

    def body(_: None, x: jnp.ndarray) -> tuple[None, None]:
        v.assign_add(x[None])
        return None, None

    with pytest.raises(UnsupportedError, match=r"in dl\.scan can't reach"):
        strategy.run(lambda: dl.scan(body, None, jnp.ones(3))[1])
    assert v.numpy().tolist() == [0.0]


def test_a_value_is_freed_with_its_variable(
    strategy: dl.OneDeviceStrategy, servers: Servers
) -> None:
    v = variable(strategy, 1.0)
    del v
    gc.collect()
    assert servers.forgotten == [0]

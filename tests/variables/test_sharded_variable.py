"""Variables in parts on several parameter servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.coordinator import ClusterCoordinator
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    InvalidArgumentError,
    UnsupportedError,
    ValueShapeError,
)
from distlab.experimental.partitioners import FixedShardsPartitioner, MaxSizePartitioner
from tests.strategies.parameter_servers import strategy_of

MODES = [False, True]
NUMBERS = np.arange(14, dtype=np.float32).reshape(7, 2)


@pytest.fixture(scope="module")
def strategy() -> dl.ParameterServerStrategy:
    return strategy_of(2, FixedShardsPartitioner(3))


@pytest.fixture
def table(strategy: dl.ParameterServerStrategy) -> Any:
    with strategy.scope():
        return dl.Variable(NUMBERS, name="table")


def test_parts_are_variables_on_the_servers_in_turn() -> None:
    strategy = strategy_of(2, FixedShardsPartitioner(3))
    with strategy.scope():
        table: Any = dl.Variable(NUMBERS, name="table", trainable=False)
        after = dl.Variable(0.0)
        unnamed: Any = dl.Variable(NUMBERS)
    assert isinstance(table, dl.ShardedVariable)
    assert [part.name for part in table.variables] == [f"table/part_{n}" for n in range(3)]
    assert [part.shape for part in table] == [(3, 2), (2, 2), (2, 2)]
    assert [part.parameter_server for part in table.variables] == [0, 1, 0]
    devices = strategy.extended.parameter_devices
    homes = [next(iter(part.value().devices())).id for part in table.variables]
    assert [f"CPU:{home}" for home in homes] == [devices[0], devices[1], devices[0]]
    assert (table.name, table.shape, table.dtype.name) == ("table", (7, 2), "float32")
    assert (table.trainable, table.strategy) == (False, strategy)
    assert table.distribute_strategy is strategy
    assert table.aggregation is dl.VariableAggregation.NONE
    assert table.synchronization is dl.VariableSynchronization.AUTO
    assert after.parameter_server == 1
    assert {part.name for part in unnamed} == {f"{unnamed.name}/part_{n}" for n in range(3)}
    assert repr(table) == "<ShardedVariable table: float32[7, 2], 3 parts>"


def test_there_are_no_more_parts_than_rows() -> None:
    with strategy_of(3, lambda **_: [9]).scope():
        pair: Any = dl.Variable([1.0, 2.0])
        single = dl.Variable([1.0])
    assert [part.numpy().tolist() for part in pair] == [[1.0], [2.0]]
    assert isinstance(single, dl.Variable)


def test_a_partitioner_receives_shape_and_dtype_by_name() -> None:
    seen: list[tuple[Any, Any]] = []

    def partitioner(*, dtype: Any, shape: Any) -> np.ndarray:
        seen.append((shape, dtype))
        return np.array([2, 1])

    with strategy_of(1, partitioner).scope():
        variable: Any = dl.Variable(lambda: jnp.ones((4, 2), jnp.bfloat16))
    assert seen == [((4, 2), np.dtype(jnp.bfloat16))]
    assert [part.dtype for part in variable] == [jnp.bfloat16, jnp.bfloat16]


@pytest.mark.parametrize("eagerly", MODES)
def test_replica_functions_read_and_assign_it_as_one_variable(table: Any, eagerly: bool) -> None:
    def step(x: jax.Array, rows: jax.Array) -> tuple[Any, ...]:
        loss, grad = jax.value_and_grad(lambda t: jnp.sum((x @ t) ** 2))(table.value())
        table.assign_sub(0.5 * grad)
        table.assign_add(jnp.ones((7, 2)))
        table.scatter_add(dl.IndexedSlices(jnp.full((3, 2), 10.0), rows))
        table.scatter_update(dl.IndexedSlices(jnp.zeros((1, 2)), [4]))
        return loss, table.value(), table.sparse_read(rows), jnp.tanh(table)[0]

    x, rows = np.eye(3, 7, dtype=np.float32), np.array([6, 0, 6])
    loss, value, read, first = table.strategy.run(
        step, args=(x, rows), options=dl.RunOptions(run_eagerly=eagerly)
    )
    expected = NUMBERS.copy()
    expected[:3] = 0.0
    expected += 1.0
    expected[6] += 20.0
    expected[0] += 10.0
    expected[4] = 0.0
    assert float(loss) == (NUMBERS[:3] ** 2).sum()
    np.testing.assert_allclose(value, expected, atol=1e-5)
    np.testing.assert_allclose(read, expected[rows], atol=1e-5)
    np.testing.assert_allclose(first, np.tanh(expected[0]), atol=1e-5)
    np.testing.assert_allclose(table.numpy(), expected, atol=1e-5)
    assert [part.parameter_server for part in table] in ([0, 1, 0], [1, 0, 1])


def test_closures_of_several_workers_lose_no_update() -> None:
    strategy = strategy_of(2, FixedShardsPartitioner(2), workers=3)
    with strategy.scope():
        table: Any = dl.Variable(np.zeros((5, 2), np.float32))
    coordinator = ClusterCoordinator(strategy)

    def step() -> None:
        strategy.run(lambda: table.assign_add(jnp.ones((5, 2)), read_value=False))

    def outside_of_run() -> None:
        table.assign_add(np.ones((5, 2), np.float32))

    for _ in range(10):
        coordinator.schedule(step)
        coordinator.schedule(outside_of_run)
    coordinator.join()
    np.testing.assert_array_equal(table.numpy(), np.full((5, 2), 20.0))


def test_it_is_an_array_to_jax_and_numpy(table: Any) -> None:
    assert (len(table), table.ndim, table.size) == (7, 2, 14)
    np.testing.assert_array_equal(table * 2 + 1, NUMBERS * 2 + 1)
    np.testing.assert_array_equal(table[1:3], NUMBERS[1:3])
    np.testing.assert_array_equal(jnp.take(table, jnp.array([6, 0]), axis=0), NUMBERS[[6, 0]])
    np.testing.assert_array_equal(jax.jit(lambda t: t + 1)(table), NUMBERS + 1)
    np.testing.assert_array_equal(jax.lax.neg(table), -NUMBERS)
    assert np.asarray(table, np.float64).dtype == np.float64
    assert table.read_value().sum() == NUMBERS.sum()
    assert table in [dl.Variable(1.0), table]
    np.testing.assert_array_equal(table.strategy.replicate({"t": table})["t"], NUMBERS)


def test_it_is_one_leaf_of_a_nest(table: Any) -> None:
    gradients = {"a": jnp.ones((7, 2)), "b": jnp.ones(())}
    nest = {"a": table, "b": dl.Variable(1.0)}
    assert dl.nest.flatten(nest)[0] is table
    jax.tree.map(lambda v, g: v.assign_sub(g), nest, gradients)
    np.testing.assert_array_equal(table.numpy(), NUMBERS - 1)
    state = optax.adam(0.1).init(nest)
    assert jax.tree.map(jnp.shape, state[0].mu) == {"a": (7, 2), "b": ()}


SIZES = (3, 1, 2)


def _whole_and_parts() -> tuple[dl.Variable, dl.ShardedVariable]:
    numbers = np.arange(1.0, sum(SIZES) + 1, dtype=np.float32)
    parts = np.split(numbers, np.cumsum(SIZES)[:-1])
    return dl.Variable(numbers), dl.ShardedVariable([dl.Variable(part) for part in parts])


KINDS = ("add", "sub", "mul", "div", "min", "max", "update")


@pytest.mark.slow
def test_rows_are_scattered_as_in_one_variable() -> None:
    pairs = {kind: _whole_and_parts() for kind in KINDS}

    def scatter(indices: Any) -> dict[str, list[Any]]:
        slices = dl.IndexedSlices(jnp.array([2.0, 3.0, 2.0, 0.5]), indices)
        return {
            kind: [getattr(v, f"scatter_{kind}")(slices).value() for v in pair]
            for kind, pair in pairs.items()
        }

    indices = np.array([5, 0, 5, 3])
    for found in (scatter(indices), dl.get_strategy().run(scatter, args=(indices,))):
        for kind, (whole, parts) in found.items():
            np.testing.assert_allclose(whole, parts, rtol=1e-6, err_msg=kind)


@pytest.mark.slow
@given(indices=st.lists(st.integers(0, sum(SIZES) - 1), min_size=4, max_size=4))
@settings(max_examples=6, deadline=None)
def test_every_row_is_found_in_its_part(indices: list[int]) -> None:
    whole, parts = _whole_and_parts()
    np.testing.assert_array_equal(parts.sparse_read(indices), whole.numpy()[indices])
    square = np.reshape(indices, (2, 2))
    np.testing.assert_array_equal(parts.sparse_read(square), whole.numpy()[square])
    slices = dl.IndexedSlices(np.ones(4, np.float32), indices)
    np.testing.assert_array_equal(parts.scatter_add(slices), whole.scatter_add(slices))


def test_colocated_variables_have_the_same_parts() -> None:
    strategy = strategy_of(3, FixedShardsPartitioner(2))
    with strategy.scope():
        table: Any = dl.Variable(NUMBERS)
        bias = dl.Variable(0.0)
        assert [part.parameter_server for part in table] == [0, 1]
        assert bias.parameter_server == 2
        with strategy.extended.colocate_vars_with(table):
            slot: Any = dl.Variable(jnp.zeros_like(table), name="slot")
            steps = dl.Variable(0)
            other = dl.Variable(np.zeros(8))
            with strategy.extended.colocate_vars_with(bias):
                inner = dl.Variable(np.zeros(7))
        after: Any = dl.Variable(NUMBERS)
    assert [part.parameter_server for part in slot] == [0, 1]
    assert [part.shape for part in slot] == [part.shape for part in table]
    assert [part.name for part in slot] == ["slot/part_0", "slot/part_1"]
    assert (steps.parameter_server, other.parameter_server) == (0, 0)
    assert isinstance(other, dl.Variable)  # TensorFlow never partitions what is colocated
    assert isinstance(inner, dl.Variable)
    assert inner.parameter_server == 2
    assert [part.parameter_server for part in after] == [0, 1]
    assert strategy.extended.variable_created_in_scope(table)
    np.testing.assert_array_equal(strategy.extended.read_var(table), NUMBERS)


def test_a_checkpoint_restores_into_any_number_of_parts(tmp_path: Path) -> None:
    with strategy_of(2, FixedShardsPartitioner(3)).scope():
        path = dl.train.Checkpoint(table=dl.Variable(NUMBERS), n=dl.Variable(3)).save(
            tmp_path / "ckpt"
        )
    partitioners = (
        MaxSizePartitioner(8),
        FixedShardsPartitioner(2),
        None,
        FixedShardsPartitioner(3),
    )
    for partitioner in partitioners:
        with strategy_of(4, partitioner).scope():
            table: Any = dl.Variable(np.zeros((7, 2), np.float32))
            checkpoint = dl.train.Checkpoint(table=table, n=dl.Variable(0))
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(table.numpy(), NUMBERS)
        path = checkpoint.save(tmp_path / "ckpt")
    plain = dl.Variable(np.zeros((7, 2), np.float32))
    dl.train.Checkpoint(table=plain, n=dl.Variable(0)).restore(path)
    np.testing.assert_array_equal(plain.numpy(), NUMBERS)


def test_misuse_is_refused_and_changes_nothing(table: Any) -> None:
    with pytest.raises(ValueShapeError, match=r"table is float32\[7, 2\], and assign got .*\[3\]"):
        table.assign(np.zeros(3, np.float32))
    with pytest.raises(ValueShapeError, match=r"assign_add got int32\[7, 2\]"):
        table.assign_add(jnp.ones((7, 2), jnp.int32))
    with pytest.raises(InvalidArgumentError, match=r"scatter_add got the index 7"):
        table.scatter_add(dl.IndexedSlices(np.ones((2, 2), np.float32), [0, 7]))
    with pytest.raises(ArgumentTypeError, match=r"needs distlab\.IndexedSlices"):
        table.scatter_update(NUMBERS)
    with pytest.raises(
        InvalidArgumentError,
        match=r"has 7 rows, and sparse_read got the index -1\. Pass indices from 0 to 6",
    ):
        table.sparse_read([0, -1])
    with pytest.raises(UnsupportedError, match=r"Write v\.assign_add"):
        table += 1
    with pytest.raises(ContextError, match=r"inside jax\.jit"):
        jax.jit(table.value)()
    with pytest.raises(ContextError, match=r"inside jax\.jit"):
        jax.jit(lambda x: table.assign(x).value())(NUMBERS)
    with pytest.raises(ValueShapeError, match="of a ShardedVariable, each of its variables"):
        table.strategy.extended.update(table, lambda v: v)
    np.testing.assert_array_equal(table.numpy(), NUMBERS)


def test_a_partitioner_divides_the_first_axis_alone() -> None:
    for counts, says in [
        ([1, 2], r"the first axis alone.*got \[1, 2\].*\[7, 2\]"),
        ([0, 1], r"at least one part, got \[0, 1\]"),
    ]:
        strategy = strategy_of(2, lambda counts=counts, **_: counts)
        with strategy.scope(), pytest.raises(ArgumentValueError, match=says):
            dl.Variable(NUMBERS)


def test_parts_are_variables() -> None:
    for odd in (3, [], [1.0], [dl.Variable(1.0), "part"]):
        with pytest.raises(ArgumentTypeError, match="needs a list of variables"):
            dl.ShardedVariable(odd)  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [False, True])
def test_indices_of_each_integer_dtype_are_those_of_all_rows(compiled: bool) -> None:
    dtype: Any = np.uint8
    first, second = np.arange(300, dtype="f4"), np.arange(300, 600, dtype="f4")
    table = dl.ShardedVariable([dl.Variable(first), dl.Variable(second)])
    last = min(np.iinfo(dtype).max, 450)
    where = np.array([1, 43, 44, last], dtype)

    def use(indices: Any) -> Any:
        rows = table.sparse_read(indices)
        table.scatter_add(dl.IndexedSlices(jnp.ones(4), indices))
        return rows

    used = dl.OneDeviceStrategy("CPU:0").run(use, args=(where,)) if compiled else use(where)
    assert used.tolist() == where.tolist()
    changed = np.arange(600, dtype="f4")
    changed[where] += 1
    np.testing.assert_array_equal(table.numpy(), changed)

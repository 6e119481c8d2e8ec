"""Variables and updates behave as in TensorFlow's own unit tests of tf.distribute.

Each test checks what tests of the same name in vars_test, values_test, mirrored_variable_test,
strategy_common_test and distribute_lib_test check, in both modes where a function runs.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import VariableAggregation as Aggregation
from distlab.errors import UnsupportedError, ValueShapeError

ON_READ = dl.VariableSynchronization.ON_READ
MODES = pytest.mark.usefixtures("eager")


@pytest.fixture
def s() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _variable(s: dl.Strategy, value: Any, **kinds: Any) -> dl.Variable:
    with s.scope():
        return dl.Variable(value, **kinds)


def _copies(v: dl.Variable) -> list[Any]:
    return [np.asarray(component).tolist() for component in v.values]


def _local(s: dl.Strategy, value: Any) -> list[Any]:
    return [np.asarray(part).tolist() for part in s.experimental_local_results(value)]


def _per_replica(s: dl.Strategy, *values: float) -> Any:
    return s.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(values[context.replica_id_in_sync_group])
    )


def _replica() -> Any:
    return dl.get_replica_context().replica_id_in_sync_group


# ---- vars_test: variables that are synchronized when written


@MODES
@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation.SUM, [8.0, 8.0]),
        (Aggregation.MEAN, [4.0, 4.0]),
        (Aggregation.ONLY_FIRST_REPLICA, [3.0, 3.0]),
        (Aggregation.NONE, [3.0, 5.0]),
    ],
)
def test_assign_per_replica_val(
    s: dl.Strategy, aggregation: Aggregation, expected: list[float]
) -> None:
    captured = _per_replica(s, 3.0, 5.0)
    v = _variable(s, 0.0, aggregation=aggregation)
    s.run(lambda: v.assign(captured))
    assert _copies(v) == expected
    w = _variable(s, 0.0, aggregation=aggregation)
    s.run(w.assign, args=(captured,))
    assert _copies(w) == expected


@MODES
def test_sum_of_one_value_for_all_replicas_is_ambiguous(s: dl.Strategy) -> None:
    v = _variable(s, 1.0, aggregation=Aggregation.SUM)
    captured = jnp.asarray(2.0)
    for verb in ("assign", "assign_add", "assign_sub"):
        for number in (2.0, 2, True):
            with pytest.raises(ValueError, match="a Python number is the same on all replicas"):
                s.run(lambda verb=verb, number=number: getattr(v, verb)(number))
        with pytest.raises(ValueError, match="SUM is ambiguous"):
            s.run(getattr(v, verb), args=(2.0,))
        with pytest.raises(ValueError, match="SUM is ambiguous"):
            s.run(lambda verb=verb: getattr(v, verb)(captured))
    assert _copies(v) == [1.0, 1.0]


@MODES
def test_variables_made_in_the_first_call_are_kept(s: dl.Strategy) -> None:
    class Model:
        w: Any = None
        v: Any = None

        def step(self) -> Any:
            if self.w is None:
                self.w = dl.Variable(0.0, aggregation=Aggregation.MEAN)
                self.v = dl.Variable(self.w.read_value(), aggregation=Aggregation.MEAN)
            return self.v.assign_add(2.0)

    model = Model()
    assert _local(s, s.run(model.step)) == [2.0, 2.0]
    assert _local(s, s.run(model.step)) == [4.0, 4.0]


# ---- vars_test: assignments of rows


def _slices(values: Any, indices: Any) -> dl.IndexedSlices:
    return dl.IndexedSlices(jnp.stack(values), jnp.stack(indices), dense_shape=(3,))


@pytest.mark.slow
@MODES
@pytest.mark.parametrize(
    ("verb", "aggregation", "start", "rows", "expected"),
    [
        ("sub", Aggregation.MEAN, [0.0, 0.0, 0.0], [0.0, 1.0], [0.0, -1.0, -1.0]),
        ("add", Aggregation.SUM, [0, 0, 0], [0, 1], [0, 2, 2]),
        ("div", Aggregation.SUM, [1, 6, 1], [2], [0, 2, 1]),
        ("mul", Aggregation.MEAN, [2.0, 1.0, 1.0], [2.0], [2.0, 1.5, 1.0]),
    ],
)
def test_rows_of_all_replicas_are_combined(
    s: dl.Strategy, verb: str, aggregation: Aggregation, start: Any, rows: Any, expected: Any
) -> None:
    v = _variable(s, start, aggregation=aggregation)

    def step() -> Any:
        n = jnp.asarray(_replica())
        indices = [n + i for i in range(len(rows))]
        return getattr(v, f"scatter_{verb}")(_slices([n + row for row in rows], indices))

    assert _local(s, s.run(step)) == [expected] * 2
    assert v.dtype == jnp.asarray(start).dtype


@MODES
@pytest.mark.parametrize(
    ("verb", "row", "expected"),
    [
        ("scatter_min", 1, [0, 1, 0]),
        ("scatter_max", 3, [0, 3, 0]),
        ("scatter_update", 3, [0, 3, 0]),
    ],
)
def test_scatter_of_one_row(s: dl.Strategy, verb: str, row: int, expected: list[int]) -> None:
    summed = _variable(s, [0, 2, 0], aggregation=Aggregation.SUM)
    first = _variable(s, [0, 2, 0], aggregation=Aggregation.ONLY_FIRST_REPLICA)

    def step(v: Any) -> Any:
        return getattr(v, verb)(dl.IndexedSlices(jnp.array([row]), jnp.array([1]), (3,)))

    with pytest.raises(NotImplementedError, match=verb):
        s.run(step, args=(summed,))
    assert _copies(summed) == [[0, 2, 0]] * 2
    assert _local(s, s.run(step, args=(first,))) == [expected] * 2


@MODES
def test_scatter_ops_with_none_aggregation(s: dl.Strategy) -> None:
    v = _variable(s, [4.0])
    delta = dl.IndexedSlices(jnp.array([2.0]), jnp.array([0]), (1,))
    for verb, expected in [
        ("scatter_sub", 2.0),
        ("scatter_add", 4.0),
        ("scatter_max", 4.0),
        ("scatter_min", 2.0),
        ("scatter_mul", 4.0),
        ("scatter_div", 2.0),
        ("scatter_update", 2.0),
    ]:
        results = s.run(lambda verb=verb: getattr(v, verb)(delta))
        assert _local(s, results) == [[expected]] * 2


@MODES
def test_scatter_of_on_read_variables_is_not_implemented(s: dl.Strategy) -> None:
    v = _variable(s, [1.0], synchronization=ON_READ, aggregation=Aggregation.SUM)
    one = dl.IndexedSlices([1.0], [0])
    for verb in ["sub", "add", "mul", "div", "min", "max", "update"]:
        with pytest.raises(NotImplementedError, match="ON_READ"):
            getattr(v, f"scatter_{verb}")(one)
        with pytest.raises(NotImplementedError, match="ON_READ"):
            s.run(getattr(v, f"scatter_{verb}"), args=(one,))


# ---- values_test


def test_deepcopy_is_a_new_variable_of_the_same_strategy(s: dl.Strategy) -> None:
    v = _variable(s, 1.0, aggregation=Aggregation.MEAN)
    with s.scope():
        new = copy.deepcopy(v)
    new.assign(5.0)
    assert (_copies(v), _copies(new)) == ([1.0, 1.0], [5.0, 5.0])
    assert (new.name, new.aggregation, new.distribute_strategy) == (v.name, Aggregation.MEAN, s)
    other = dl.MirroredStrategy(["CPU:2", "CPU:3"])
    with other.scope(), pytest.raises(RuntimeError, match="belongs to"):
        copy.deepcopy(v)


def test_in_place_operators_are_refused(s: dl.Strategy) -> None:
    v = _variable(s, 1.0)
    with pytest.raises(RuntimeError, match="assign_add"):
        v += 1.0
    for operator in ("sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and"):
        with pytest.raises(UnsupportedError, match="operator"):
            getattr(v, f"__i{operator}__")(2.0)
    assert _copies(v) == [1.0, 1.0]


@MODES
@pytest.mark.parametrize("left", [np.ones(2, "int32"), np.int8(1)])
def test_numpy_leaves_operators_to_the_variable(s: dl.Strategy, left: Any) -> None:
    start = jnp.array([1.0, 2.0], jnp.bfloat16)
    v = _variable(s, start, aggregation=Aggregation.MEAN, trainable=False)

    def apply() -> tuple[Any, ...]:
        return left + v, left / v, left < v

    def of_arrays(array: jax.Array) -> tuple[Any, ...]:
        return left + array, left / array, left < array

    of_replica = s.experimental_local_results(s.run(apply)[1])[1]
    for result, expected in zip(
        (*apply(), of_replica), (*of_arrays(v.value()), left / v.value()), strict=True
    ):
        assert isinstance(result, jax.Array)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


@MODES
def test_a_copy_of_another_replica_is_read_and_assigned_as_such(s: dl.Strategy) -> None:
    v = _variable(s, 1.0)
    v.values[1].assign(7.0)
    assert _local(s, s.run(lambda: v.values[1].read_value() + 0)) == [7.0, 7.0]
    s.run(lambda: v.values[1].assign(_replica() + 50.0, read_value=False))
    assert _copies(v) == [1.0, 51.0]


# ---- mirrored_variable_test, strategy_common_test


def test_creators_are_called_from_the_innermost_scope_outwards(s: dl.Strategy) -> None:
    calls = []

    def creator(name: str) -> Any:
        def make(next_creator: Any, **kwargs: Any) -> Any:
            calls.append((name, kwargs["initial_value"]))
            return next_creator(**{**kwargs, "initial_value": kwargs["initial_value"] + 1.0})

        return make

    with dl.variable_creator_scope(creator("outer")), s.scope():
        with dl.variable_creator_scope(creator("inner")):
            v = dl.Variable(1.0)
        dl.Variable(7.0)
    assert calls == [("inner", 1.0), ("outer", 2.0), ("outer", 7.0)]
    assert _copies(v) == [3.0, 3.0]
    assert s.extended.variable_created_in_scope(v)
    dl.Variable(1.0)
    assert len(calls) == 3


def test_update_runs_in_cross_replica_context(s: dl.Strategy) -> None:
    v, other = _variable(s, 1.0), _variable(s, 0.0)
    seen: list[Any] = []

    def update(c: Any) -> Any:
        seen.append((dl.in_cross_replica_context(), dl.get_replica_context()))
        other.assign(float(c.number) + 1.0)
        return c.assign(other + 10.0)

    s.extended.update(v, update)
    assert seen == [(True, None), (True, None)]
    assert _copies(other) == [1.0, 2.0]
    assert _copies(v) == [11.0, 12.0]
    devices = s.extended.non_slot_devices([v])
    s.extended.update_non_slot(
        devices, lambda: seen.append((dl.in_cross_replica_context(), dl.get_replica_context()))
    )
    assert seen == [(True, None)] * 4


@MODES
def test_update_can_be_called_in_a_replica_function(s: dl.Strategy) -> None:
    v = _variable(s, 5.0)
    s.run(lambda: s.extended.update(v, lambda c, x: c.assign(x), args=(_replica() * 1.0,)))
    assert _copies(v) == [0.0, 1.0]


def test_a_failed_update_leaves_all_variables_as_they_were(s: dl.Strategy) -> None:
    v, other = _variable(s, 1.0), _variable(s, 2.0)

    def update(c: Any) -> None:
        other.assign(9.0)
        c.assign(9.0)
        if c.number == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        s.extended.update(v, update)
    assert (_copies(v), _copies(other)) == ([1.0, 1.0], [2.0, 2.0])


def test_ungrouped_results_are_tuples_of_each_copys_result(s: dl.Strategy) -> None:
    v = _variable(s, 3.0)
    assert s.extended.update(v, lambda _: 2, group=False) == (2,)
    assert [float(x) for x in s.extended.update(v, lambda c: c * 2, group=False)] == [6.0, 6.0]
    devices = s.extended.non_slot_devices([v])
    pair = s.extended.update_non_slot(devices, lambda: (True, "a"), group=False)
    assert pair == ((True,), ("a",))


@MODES
def test_values_rotate_among_replicas_in_merge_call(s: dl.Strategy) -> None:
    def merge(strategy: dl.Strategy, x: Any) -> Any:
        parts = strategy.experimental_local_results(x)
        return strategy.experimental_distribute_values_from_function(
            lambda c: {"x": parts[(c.replica_id_in_sync_group + 1) % 2], "same": 7}
        )

    def step() -> Any:
        return dl.get_replica_context().merge_call(merge, args=(_replica() * 10.0,))

    result = s.run(step)
    assert _local(s, result["x"]) == [10.0, 0.0]
    assert _local(s, result["same"]) == [7, 7]


@MODES
def test_sparse_values_are_reduced_by_joining_them(s: dl.Strategy) -> None:
    def step() -> Any:
        n = jnp.asarray(_replica())
        slices = dl.IndexedSlices(jnp.stack([n + 1.0]), jnp.stack([n * 2]), (3,))
        return slices, dl.get_replica_context().all_reduce("MEAN", {"g": slices, "x": n * 4.0})

    apart, reduced = s.run(step)
    together = s.reduce("SUM", apart, axis=None)
    assert (together.values.tolist(), together.indices.tolist()) == ([1.0, 2.0], [0, 2])
    assert _local(s, reduced["g"].values) == [[0.5, 1.0]] * 2
    assert _local(s, reduced["x"]) == [2.0, 2.0]


# ---- distribute_lib_test


def test_local_results_of_a_nest_are_one_for_each_replica(s: dl.Strategy) -> None:
    local = s.experimental_local_results
    assert local({"a": 1.0}) == ({"a": 1.0}, {"a": 1.0})
    assert local([1, 2]) == ([1, 2], [1, 2])
    assert (local([]), local({})) == (([], []), ({}, {}))
    assert (local(3), local(None), local("a")) == ((3,), (None,), ("a",))
    plain, v = dl.Variable(2.0), _variable(s, 1.0)
    assert local(plain) == (plain,)
    assert local([v, plain]) == ([v.values[0], plain], [v.values[1], plain])
    mixed = local([_per_replica(s, 3.0, 5.0), 1])
    assert [[float(x) for x in row] for row in mixed] == [[3.0, 1.0], [5.0, 1.0]]
    one = dl.OneDeviceStrategy("CPU:0")
    assert one.experimental_local_results({"a": 1}) == ({"a": 1},)


def test_a_single_copy_keeps_its_synchronization() -> None:
    kinds = dl.VariableSynchronization
    central = dl.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    for s in (central, dl.OneDeviceStrategy("CPU:1"), dl.get_strategy()):
        for kind in kinds:
            assert _variable(s, 1.0, synchronization=kind).synchronization is kind
    mirrored = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    assert _variable(mirrored, 1.0).synchronization is kinds.ON_WRITE
    with pytest.raises(ValueShapeError, match="synchronization NONE has no meaning"):
        _variable(mirrored, 1.0, synchronization=kinds.NONE)


@MODES
def test_a_random_key_in_a_variable_is_assigned_as_any_value(s: dl.MirroredStrategy) -> None:
    with s.scope():
        key = dl.Variable(jax.random.key(0))

    def step() -> Any:
        kept, drawn = jax.random.split(key.value())
        key.assign(kept)
        return jax.random.normal(drawn)

    expected, drawn = jax.random.split(jax.random.key(1))
    key.assign(jax.random.key(1))
    numbers = s.experimental_local_results(s.run(step))
    assert [float(number) for number in numbers] == [float(jax.random.normal(drawn))] * 2
    assert (jax.random.key_data(key.value()) == jax.random.key_data(expected)).all()
    with pytest.raises(ValueShapeError, match="Pass a value of that shape and dtype"):
        key.assign(1.0)

"""Kinds of NumPy arrays: no mask, field or byte order is lost silently, and no memory is shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DistlabError
from tests.misuse.table import has_remedy
from tests.misuse.world import World

_FIELDS: Final = np.zeros(2, [("a", "f4"), ("b", "i4")])
KINDS: Final[dict[str, tuple[Any, str]]] = {
    "masked": (np.ma.MaskedArray([1.0, 2.0], [False, True]), "a masked array, whose mask"),
    "masked constant": (np.ma.masked, "a masked array, whose mask"),
    "fields": (_FIELDS, "the fields 'a', 'b'"),
    "records": (_FIELDS.view(np.recarray), "the fields 'a', 'b'"),
    "one record": (_FIELDS[0], "the fields 'a', 'b'"),
}
"""Values, and what the error says of them."""

Dataset: Final = dl.data.Dataset


def _generated(a: Any) -> object:
    signature = dl.data.TensorSpec(a.shape, np.dtype("float32"))
    return list(Dataset.from_generator(lambda: iter([a]), output_signature=signature))


def _eagerly(w: World, a: Any) -> object:
    return w.strategy.run(lambda x: x, args=(a,), options=dl.RunOptions(run_eagerly=True))


def _after_plain(w: World, a: Any) -> object:
    """Runs a program that is compiled for an array of this shape and dtype."""

    def step(x: Any) -> Any:
        return x

    if a.dtype.names is None:
        w.strategy.run(step, args=(np.zeros(a.shape, a.dtype),))
    return w.strategy.run(step, args=(a,))


VERBS: Final[dict[str, Callable[[World, Any], object]]] = {
    "from_tensor_slices": lambda _, a: Dataset.from_tensor_slices([a]),
    "from_tensors": lambda _, a: Dataset.from_tensors({"x": a}),
    "from_generator": lambda _, a: _generated(a),
    "map": lambda _, a: list(Dataset.range(1).map(lambda _: a)),
    "run": lambda w, a: w.strategy.run(lambda x: x, args=(a,)),
    "run of a known program": _after_plain,
    "run of a Mirrored": lambda w, a: w.strategy.run(lambda x: x, args=(dl.Mirrored(a),)),
    "run of a nest": lambda w, a: w.strategy.run(lambda x: x, args=({"x": [a]},)),
    "run eagerly": _eagerly,
    "Variable": lambda _, a: dl.Variable(a),
    "assign": lambda _, a: dl.Variable(jnp.zeros(2)).assign(a),
    "assign_add": lambda _, a: dl.Variable(jnp.zeros(2)).assign_add(a),
    "reduce": lambda w, a: w.strategy.reduce("MEAN", a, axis=None),
    "replicate": lambda w, a: w.strategy.replicate({"x": a}),
    "all_reduce": lambda w, a: w.strategy.run(
        lambda: dl.get_replica_context().all_reduce("SUM", a)
    ),
    "export": lambda _, a: dl.export(lambda x: x, a),
    "metric": lambda _, a: dl.metrics.Mean().update_state(a),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_array_that_is_more_than_numbers_is_refused(
    verb: str, kind: str, tmp_path: Path
) -> None:
    value, says = KINDS[kind]
    with pytest.raises(DistlabError, match=says) as refused:
        VERBS[verb](World(tmp_path), value)
    assert has_remedy(str(refused.value))


def test_an_exported_function_refuses_them() -> None:
    exported = dl.export(lambda x: x, jnp.zeros(2))
    for value, _ in KINDS.values():
        with pytest.raises(DistlabError, match="do not fit"):
            exported(value)


def test_the_remedies_work(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    masked, _ = KINDS["masked"]
    given = (masked.filled(0), np.ma.getmaskarray(masked))
    total = strategy.run(lambda x, mask: jnp.sum(x, where=~mask), args=given)
    assert [float(x) for x in total.values] == [1.0] * 4
    rows = Dataset.from_tensor_slices({name: _FIELDS[name] for name in _FIELDS.dtype.names or ()})
    assert [set(row) for row in rows] == [{"a", "b"}] * 2


def test_numbers_of_dtypes_that_numpy_lacks_are_plain(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    half = np.ones(2, jnp.bfloat16)
    doubled = strategy.run(lambda x: 2 * x, args=(half,))
    assert [v.tolist() for v in doubled.values] == [[2.0, 2.0]] * 4
    assert doubled.values[0].dtype == jnp.bfloat16
    assert jax.numpy.asarray(strategy.replicate(half).values[0]).tolist() == [1.0, 1.0]


OF_DEVICES: Final[dict[str, Callable[[World, Any], object]]] = {
    "run": lambda w, a: w.strategy.run(lambda x: x, args=(a,)),
    "run eagerly": _eagerly,
    "run of a nest": lambda w, a: w.strategy.run(lambda x: x, args=({"x": [a]},)),
    "replicate": lambda w, a: w.strategy.replicate({"w": a}),
    "reduce": lambda w, a: w.strategy.reduce("SUM", a, axis=0),
    "Variable": lambda _, a: dl.Variable(a),
    "assign": lambda _, a: dl.Variable([0.0, 0.0]).assign(a),
}


@pytest.mark.parametrize("name", OF_DEVICES)
def test_another_byte_order_is_refused_with_the_way_out(name: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    array = np.array([1.5, 2.5], ">f4")
    with pytest.raises(DistlabError, match="'>f4', whose byte order") as refused:
        OF_DEVICES[name](world, array)
    assert has_remedy(str(refused.value))
    OF_DEVICES[name](world, array.astype(array.dtype.newbyteorder("=")))


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones(2, np.longdouble), "float128.*astype\\('float64'\\)"),
        (np.longdouble(1), "float128.*astype\\('float64'\\)"),
        (np.ones(2, np.clongdouble), "complex256.*astype\\('complex128'\\)"),
        (np.zeros(2, "V3"), r"\|V3.*view\(numpy\.uint8\)"),
    ],
    ids=["long", "one", "complex", "bytes"],
)
@pytest.mark.parametrize("name", OF_DEVICES)
def test_what_no_device_can_hold_is_refused_with_the_way_out(
    name: str, array: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(DistlabError, match=says) as refused:
        OF_DEVICES[name](World(tmp_path), array)
    assert has_remedy(str(refused.value))


@pytest.mark.parametrize("dtype", [">f4", np.longdouble, "V3"])
def test_a_result_that_no_device_can_hold_stays_an_array_of_the_host(
    dtype: Any, tmp_path: Path
) -> None:
    strategy, array = World(tmp_path).strategy, np.zeros(2, dtype)
    assert strategy.run(lambda: array) is array
    values = strategy.experimental_distribute_values_from_function(lambda _: array)
    assert all(value is array for value in values.values)


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]])
def test_a_state_does_not_follow_later_writes_to_the_array_that_it_was_made_of(
    devices: list[str],
) -> None:
    strategy = dl.MirroredStrategy(devices)
    for size in range(1, 65):  # JAX takes the memory of some of them: those that are aligned
        array = np.zeros(4 * size, np.float32)
        with strategy.scope():
            variable = dl.Variable(array)
        single, copies = dl.Variable(array), strategy.replicate(array)
        array[:] = 7
        for held in (variable.numpy(), single.numpy(), *strategy.unwrap(copies)):
            np.testing.assert_array_equal(held, np.zeros(4 * size))


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_masked_array_that_a_function_computes_with_is_refused(
    eagerly: bool, tmp_path: Path
) -> None:
    masked, _ = KINDS["masked"]
    strategy, options = World(tmp_path).strategy, dl.RunOptions(run_eagerly=eagerly)

    def step(x: Any) -> Any:
        return x * masked

    with pytest.raises(DistlabError, match="step computes with a masked array") as refused:
        strategy.run(step, args=(jnp.ones(()),), options=options)
    assert has_remedy(str(refused.value))
    filled = strategy.run(lambda x: x * masked.filled(0), args=(jnp.ones(()),), options=options)
    assert filled.values[0].shape == masked.shape

"""Slips with data that others made and that went through, or were told of in JAX's words only."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import distlab as dl
from distlab.errors import DistlabError, StructureError, ValueShapeError
from tests.misuse.table import require_refusal

DATASET: Final = dl.data.Dataset
SWAPPED: Final = [">i4", ">i2", ">u2", ">f2", ">f4", ">i8", ">f8", ">c8"]


def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def distributed(dataset: Any) -> list[Any]:
    """Returns what the replicas receive in the first step, as one list."""
    batch = first_of(strategy().experimental_distribute_dataset(dataset))
    return [number for part in batch.values for number in np.asarray(part).tolist()]


def first_of(steps: Any) -> Any:
    return next(iter(steps))


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


class Iterable:
    """An iterable of what a function returns for each number."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        return map(self._function, range(3))


@pytest.mark.parametrize("dtype", SWAPPED)
@pytest.mark.parametrize(
    "made",
    [
        lambda x: [x],
        lambda x: iter([x]),
        lambda x: DATASET.from_tensors({"x": x}).map(lambda row: row["x"]),
        lambda x: DATASET.from_tensor_slices(x).batch(4),
        lambda x: DATASET.from_tensor_slices(list(x.reshape(4, 1))).unbatch().batch(4),
        DATASET.from_tensors,
        lambda x: DATASET.from_tensor_slices(read_only(x)).shuffle(1).batch(4),
        lambda x: DATASET.from_tensor_slices(x).batch(4).cache(),
        lambda x: DATASET.from_generator(lambda: iter([x])),
        lambda x: DATASET.from_generator(
            lambda: iter([x]), output_signature=dl.data.TensorSpec((4,), x.dtype)
        ),
        lambda x: DATASET.range(1).map(lambda _: x),
        lambda x: DATASET.range(1).scan(0, lambda state, _: (state, x)),
    ],
)
def test_numbers_of_the_other_byte_order_arrive_as_they_are(
    made: Callable[[Any], Any], dtype: str
) -> None:
    assert distributed(made(np.arange(4, dtype=dtype))) == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", SWAPPED)
def test_specs_have_the_machines_byte_order(dtype: str) -> None:
    native = np.dtype(dtype).newbyteorder("=")
    assert DATASET.from_tensor_slices(np.arange(4, dtype=dtype)).element_spec.dtype == native
    assert dl.data.TensorSpec((2,), np.dtype(dtype)) == dl.data.TensorSpec((2,), native)
    if native.kind in "iuf":
        numbers = DATASET.range(3, output_type=dtype)
        assert numbers.element_spec.dtype == native
        assert next(iter(numbers)).dtype == native


def test_texts_and_dates_of_the_other_byte_order_keep_their_meaning() -> None:
    texts = DATASET.from_tensor_slices(np.array(["a", "ß"], ">U3"))
    assert list(texts) == [b"a", "ß".encode()]
    days = np.array(["2020-01-02", "2021-03-04"], ">M8[D]")
    assert [str(day) for day in DATASET.from_tensor_slices(days)] == ["2020-01-02", "2021-03-04"]


@pytest.mark.parametrize(
    "made",
    [
        lambda fill: DATASET.range(3).map(fill),
        lambda fill: DATASET.range(3).map(fill, num_parallel_calls=1),
        lambda fill: DATASET.range(3).map(lambda i: read_only(fill(i))),
        lambda fill: DATASET.range(3).map(lambda i: {"x": fill(i)}).map(lambda row: row["x"]),
        lambda fill: DATASET.range(3).scan(0, lambda state, i: (state, fill(i))),
        lambda fill: DATASET.from_generator(lambda: map(fill, range(3))),
        lambda fill: DATASET.from_generator(lambda: (read_only(fill(i)) for i in range(3))),
        lambda fill: dl.data.as_dataset(Iterable(fill)),
        lambda fill: dl.data.as_dataset(Iterable(lambda i: read_only(fill(i)))),
        lambda fill: dl.data.as_dataset(Iterable(lambda i: (fill(i), i))).map(lambda x, _: x),
    ],
)
@pytest.mark.parametrize("size", [1, 5000])
def test_a_buffer_that_is_filled_again_keeps_no_element_from_its_numbers(
    made: Callable[[Any], Any], size: int
) -> None:
    buffer = np.zeros(size)

    def fill(number: Any) -> np.ndarray:
        buffer[:] = number
        return buffer

    dataset = made(fill)
    assert [row[-1] for row in list(dataset)] == [0, 1, 2]
    assert [row[0] for row in next(iter(dataset.batch(3)))] == [0, 1, 2]


def test_distributed_batches_keep_no_buffer_of_a_function() -> None:
    buffer = np.zeros((4, 1000), np.float32)

    def fill(number: Any) -> np.ndarray:
        buffer[...] = number
        return buffer

    batches = list(strategy().experimental_distribute_dataset(DATASET.range(3).map(fill)))
    buffer[...] = 7
    assert [np.asarray(batch.values[1])[1, 999] for batch in batches] == [0, 1, 2]


def test_read_only_results_are_not_copied() -> None:
    rows = np.arange(12.0).reshape(3, 4).copy()
    rows.flags.writeable = False
    for dataset in (
        DATASET.from_tensor_slices(rows),
        DATASET.range(3).map(lambda i: rows[i]),
        dl.data.as_dataset(Iterable(lambda i: rows[i])),
        DATASET.from_tensor_slices(rows).map(lambda row: row[1:]),
    ):
        assert all(np.shares_memory(row, rows) for row in dataset)
    batches = DATASET.from_tensor_slices(np.zeros((64, 1000))).shuffle(64, seed=1).batch(32)
    ((given, got),) = batches.take(1).map(lambda batch: (batch, batch[1:]))
    assert np.shares_memory(given, got)


@pytest.mark.parametrize("size", [4, 5000])
@pytest.mark.parametrize(
    "view",
    [
        read_only,
        lambda array: read_only(array)[:, :3],
        lambda array: read_only(array.reshape(-1)).reshape(4, -1),
        lambda array: np.broadcast_to(array, (2, *array.shape))[0],
    ],
)
def test_a_read_only_view_does_not_follow_the_memory_behind_it(
    view: Callable[[np.ndarray], np.ndarray], size: int
) -> None:
    memory = np.zeros((4, size))
    slices = DATASET.from_tensor_slices(view(memory))
    whole = DATASET.from_tensors(view(memory)).cache()
    batch = next(iter(strategy().experimental_distribute_dataset([view(memory)])))
    memory[...] = 7
    assert [row[0] for row in slices] == [0, 0, 0, 0]
    assert next(iter(whole))[3, 0] == 0
    assert np.asarray(batch.values[1])[1, 0] == 0


@pytest.mark.parametrize("size", [40, 5000])
def test_windows_of_an_array_are_those_at_the_call_and_share_one_copy(size: int) -> None:
    series = np.arange(size)
    windows = DATASET.from_tensor_slices(sliding_window_view(series, 10)[3::2])
    backwards = DATASET.from_tensor_slices(sliding_window_view(series, 10)[::-1])
    repeated = DATASET.from_tensor_slices(np.broadcast_to(series[:2], (3, 2)))
    series[...] = -1
    first, second = list(windows)[:2]
    assert first.tolist() == list(range(3, 13))
    assert second.tolist() == list(range(5, 15))
    assert np.shares_memory(first, second)
    assert next(iter(backwards)).tolist() == list(range(size - 10, size))
    assert [row.tolist() for row in repeated] == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (1.5, "int32", "1.5 does not fit int32"),
        (np.float32(0.25), "int64", "0.25 does not fit int64"),
        ([1.0, 2.5], "uint8", "2.5 does not fit uint8"),
        (float("nan"), "int32", "nan does not fit int32"),
        (1e30, "int64", "1e[+]30 does not fit int64"),
        (300, "uint8", "300 does not fit uint8"),
        ([1, 300], "uint8", "300 does not fit uint8"),
        (np.array([-1]), "uint64", "-1 does not fit uint64"),
        (np.array([2**40]), "int32", "1099511627776 does not fit int32"),
        (ml_dtypes.bfloat16(1.5), "int32", "1.5 does not fit int32"),
    ],
)
def test_a_generators_number_is_not_cut_off_to_its_signature(
    value: Any, dtype: str, said: str
) -> None:
    spec = dl.data.TensorSpec((None,) * np.ndim(value), np.dtype(dtype))
    for dataset in (
        DATASET.from_generator(lambda: iter([value]), output_types=dtype),
        DATASET.from_generator(lambda: iter([value]), output_signature=spec),
    ):
        require_refusal(functools.partial(list, dataset), ValueShapeError, said)


def test_a_generators_whole_numbers_become_those_of_its_signature() -> None:
    for value, dtype in (
        (2.0, "int32"),
        (np.array([1.0, 255.0]), "uint8"),
        (np.array([1, 255], np.int64), "uint8"),
        (True, "int32"),
        (3, "float32"),
        (1.1, "float16"),
        (2.5, "float64"),
        (np.array([2**63], np.uint64), "uint64"),
    ):
        (got,) = DATASET.from_generator(lambda v=value: iter([v]), output_types=dtype)
        assert got.dtype == dtype
        assert np.array_equal(got, np.asarray(value).astype(dtype))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("fetch", [True, False])
@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.arange(4, dtype=np.longdouble), str(np.dtype(np.longdouble))),
        (np.arange(4, dtype=np.clongdouble), str(np.dtype(np.clongdouble))),
        (np.zeros(4, "V4"), "V4"),
    ],
)
def test_numbers_that_no_device_has_are_refused_with_a_remedy(
    array: np.ndarray, said: str, replicas: int, fetch: bool
) -> None:
    if array.dtype.itemsize == 8:
        pytest.skip("this platform's longdouble is float64")
    mirrored = dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)])
    options = dl.InputOptions(experimental_fetch_to_device=fetch)
    for dataset in ([array], DATASET.from_tensor_slices(array).batch(4)):
        steps = mirrored.experimental_distribute_dataset(dataset, options)
        require_refusal(functools.partial(first_of, steps), StructureError, f"{said}.*no device")


def test_numbers_of_jax_and_texts_are_still_distributed() -> None:
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, bool, "f8", "c16"):
        got = distributed([np.array([0, 1, 1, 0]).astype(dtype)])
        assert got == [0, 1, 1, 0]
    assert distributed(DATASET.from_tensor_slices(["a", "b"]).batch(2)) == [b"a", b"b"]


def test_longdoubles_that_the_dataset_converts_are_distributed() -> None:
    numbers = DATASET.from_tensor_slices(np.arange(4, dtype=np.longdouble))
    assert distributed(numbers.map(lambda x: x.astype("float32")).batch(4)) == [0, 1, 2, 3]


WHOLE: Final = DATASET.range(2)
OTHERS: Final[dict[str, tuple[Any, type[DistlabError], str]]] = {
    "dtype": (DATASET.from_tensor_slices([1.5]), ValueShapeError, "int64 and then float32"),
    "text": (DATASET.from_tensor_slices(["a"]), ValueShapeError, "int64 and then object"),
    "pair": (DATASET.zip(WHOLE, WHOLE), StructureError, r"got \* and \(\*, \*\)"),
    "dict": (DATASET.from_tensors({"a": 1}), StructureError, r"got \* and \{'a': \*\}"),
    "dataset": (WHOLE.window(2), ValueShapeError, "int64 and then Dataset"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_concatenate_of_unlike_datasets_names_both(name: str) -> None:
    other, error, said = OTHERS[name]
    require_refusal(lambda: WHOLE.concatenate(other), error, said)


@pytest.mark.parametrize("name", OTHERS)
def test_concatenate_of_datasets_that_turn_out_unlike_names_both(name: str) -> None:
    other, error, said = OTHERS[name]
    joined = WHOLE.map(lambda x: x).concatenate(other)
    require_refusal(lambda: list(joined), error, said)
    require_refusal(lambda: list(joined.batch(3)), error, said)


def test_concatenate_of_other_shapes_and_of_an_empty_dataset_is_allowed() -> None:
    long = DATASET.from_tensors(np.arange(3)).map(lambda x: x)
    assert [len(row) for row in DATASET.from_tensors(np.arange(2)).concatenate(long)] == [2, 3]
    floats = DATASET.range(2).map(lambda x: x / 2)
    assert list(DATASET.range(0).map(lambda x: x).concatenate(floats)) == [0, 0.5]
    assert list(WHOLE.map(lambda x: x).concatenate(WHOLE.take(0))) == [0, 1]


def test_concatenate_goes_on_from_a_position_in_its_second_dataset() -> None:
    joined = WHOLE.map(lambda x: x).concatenate(WHOLE.map(lambda x: x + 10))
    first, second = joined.elements(), joined.elements()
    assert [next(first).value for _ in range(3)] == [0, 1, 10]
    assert next(second).value == 0
    second.restore(first.state())
    assert [element.value for element in second] == [11]


@pytest.mark.parametrize(
    ("values", "indices", "said"),
    [
        (jnp.ones((2, 3)), jnp.array([0.5, 1.5]), r"\[2, 3\] at indices float32\[2\]"),
        ([1.0, 2.0], [0, 1.0], r"\[2\] at indices float64\[2\]"),
        (jnp.ones((2, 3)), jnp.array([0, 1, 2]), r"\[2, 3\] at indices int32\[3\]"),
        (np.ones(3), [0], r"float64\[3\] at indices int64\[1\]"),
        (np.ones(2), [True, False], r"indices bool\[2\]"),
        (1.0, [0], r"\[\] at indices int64\[1\]"),
    ],
)
def test_slices_need_a_whole_number_for_each_row(values: Any, indices: Any, said: str) -> None:
    require_refusal(lambda: dl.IndexedSlices(values, indices), ValueShapeError, said)
    run = strategy().run
    require_refusal(lambda: run(lambda: dl.IndexedSlices(values, indices)), ValueShapeError, said)


def test_slices_that_fit_are_kept() -> None:
    for values, indices in (([], []), ([1.0], [0]), (jnp.ones((2, 3, 4)), np.ones((2, 3), int))):
        assert dl.IndexedSlices(values, indices).indices is indices

    def step() -> Any:
        number = dl.get_replica_context().replica_id_in_sync_group
        return dl.IndexedSlices([jnp.float32(1), 2.0], [number, number + 1])

    slices = strategy().run(step)
    assert [int(index.values[1]) for index in slices.indices] == [1, 2]


def test_a_counter_is_mapped_like_another_dict() -> None:
    counted = collections.Counter("aab")
    more = dl.nest.map_structure(lambda a: a + 1, counted)
    assert type(more) is collections.Counter
    assert more == {"a": 3, "b": 2}
    assert dl.nest.pack_sequence_as(counted, [5, 6]) == collections.Counter(a=5, b=6)
    assert dl.nest.map_structure_up_to(counted, str, counted) == {"a": "2", "b": "1"}
    assert counted == {"a": 2, "b": 1}

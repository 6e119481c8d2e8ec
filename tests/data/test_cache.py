"""cache, save and load: elements that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import AutoShardPolicy, Dataset, Options, TensorSpec, TextLineDataset, auto_shard
from distlab.errors import (
    DataLossError,
    InvalidArgumentError,
    UnsupportedError,
)
from tests.data.models import lists
from tests.data.structures import Pair, fill, plain, row, structures


class Counted:
    """A dataset that counts the calls of its function."""

    def __init__(self, size: int) -> None:
        self.calls = 0
        self.dataset = Dataset.range(size).map(self._call)

    def _call(self, x: Any) -> Any:
        self.calls += 1
        return x * 10


def _in_memory(_: Path) -> str:
    return ""


def _in_file(folder: Path) -> str:
    return str(folder / "kept" / "numbers")


@pytest.mark.parametrize("place", [_in_memory, _in_file])
def test_the_source_is_read_once(place: Callable[[Path], str], tmp_path: Path) -> None:
    source = Counted(4)
    cached = source.dataset.cache(place(tmp_path))
    assert lists(cached) == [0, 10, 20, 30]
    before = source.calls
    assert lists(cached) == [0, 10, 20, 30]
    assert lists(cached.repeat(3).batch(6)) == [[0, 10, 20, 30, 0, 10], [20, 30, 0, 10, 20, 30]]
    assert source.calls == before
    assert len(cached) == 4
    assert cached.element_spec == TensorSpec((), np.dtype(np.int64))


@pytest.mark.parametrize("place", [_in_memory, _in_file])
def test_only_a_whole_iteration_counts(place: Callable[[Path], str], tmp_path: Path) -> None:
    source = Counted(4)
    cached = source.dataset.cache(place(tmp_path))
    assert lists(cached.take(2)) == [0, 10]
    iterator = iter(cached)
    next(iterator)
    iterator.close()
    before = source.calls
    assert lists(cached) == [0, 10, 20, 30]
    assert source.calls >= before + 4
    assert not list(tmp_path.rglob("*.part"))


def test_a_later_program_reads_the_file_instead_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    assert lists(Counted(3).dataset.cache(path)) == [0, 10, 20]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "kept.data-00000-of-00001",
        "kept.index",
    ]
    later = Counted(3)
    assert lists(later.dataset.cache(path).map(lambda x: x + 1)) == [1, 11, 21]
    assert later.calls == 0


@pytest.mark.parametrize("place", [_in_memory, _in_file])
def test_shuffle_before_has_one_order_and_after_many(
    place: Callable[[Path], str], tmp_path: Path
) -> None:
    numbers = Dataset.range(30).map(lambda x: x)
    before = numbers.shuffle(30, seed=1).cache(place(tmp_path))
    assert lists(before) == lists(before)
    assert lists(before.repeat(2))[:30] == lists(before)
    assert sorted(lists(before)) == list(range(30))
    after = numbers.cache(place(tmp_path / "other")).shuffle(30, seed=1)
    assert lists(after) != lists(after)
    assert sorted(lists(after)) == list(range(30))


def test_arrays_are_not_kept_twice_and_stay_index_arithmetic() -> None:
    rows = Dataset.from_tensor_slices(np.arange(8))
    assert rows.cache().plan is rows.plan
    batches = rows.batch(2)
    assert batches.cache().plan is batches.plan
    shuffled = rows.shuffle(8, seed=2).cache().batch(4)
    for element in shuffled.elements():
        np.testing.assert_array_equal(element.value, element.indices)


def test_kept_arrays_can_not_be_changed_by_functions_or_sources() -> None:
    buffer = np.zeros(1)

    def refill() -> Any:
        for number in range(3):
            buffer[:] = number
            yield buffer

    cached = Dataset.from_generator(refill).cache()
    assert lists(cached) == lists(cached) == [[0], [1], [2]]

    def add_in_place(x: Any) -> Any:
        x += 1
        return x

    with pytest.raises(ValueError, match="read-only"):
        list(cached.map(add_in_place))


@settings(max_examples=15, deadline=None)
@given(structures(), st.booleans())
def test_files_keep_every_structure(
    tmp_path_factory: pytest.TempPathFactory, structure: Any, batched: bool
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    arrays = fill(structure, 5)
    dataset = Dataset.from_tensor_slices(arrays).cache(folder / "a")
    expected = [row(arrays, i) for i in range(5)]
    if batched:
        dataset = Dataset.from_tensor_slices(arrays).batch(5).cache(folder / "b")
        expected = [plain(arrays)]
    first = list(dataset)
    again = list(dataset)
    assert [plain(element) for element in first] == expected
    assert [plain(element) for element in again] == expected
    assert [e.indices.tolist() for e in dataset.elements() if e.indices is not None]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ">f4"])
def test_files_keep_dtypes(dtype: Any, tmp_path: Path) -> None:
    values = np.array([[0, 1], [2, 3]]).astype(dtype)
    Dataset.from_tensor_slices(values).save(tmp_path)
    found = np.stack(list(Dataset.load(tmp_path)))
    assert found.dtype == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found.astype(np.complex128), values.astype(np.complex128))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data-00000-of-00001", lambda _: b""),
        ("data-00000-of-00001", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]),
        ("index", lambda data: data[:-4]),
        ("index", lambda data: data.replace(b'"elements":5', b'"elements":6')),
    ],
)
def test_damaged_files_raise_data_loss(
    name: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path, damaged = tmp_path / "kept", tmp_path / f"kept.{name}"
    list(Dataset.range(5).cache(path))
    damaged.write_bytes(change(damaged.read_bytes()))
    with pytest.raises(DataLossError, match="kept"):
        list(Dataset.range(5).cache(path))
    (tmp_path / "kept.index").unlink()
    assert lists(Dataset.range(5).cache(path)) == [0, 1, 2, 3, 4]


def test_files_of_another_pipeline_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    list(Dataset.range(5).cache(path))
    for other in (Dataset.range(5, output_type=np.int32), Dataset.range(5).batch(2)):
        with pytest.raises(InvalidArgumentError, match="other components than the dataset"):
            list(other.cache(path))


def test_each_worker_keeps_its_own_files(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    names = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    dataset = TextLineDataset(names).cache(tmp_path / "kept" / "lines")
    for _ in range(2):
        parts = [list(auto_shard(dataset, 2, index)) for index in range(2)]
        assert parts == [[b"a1", b"a2", b"c1", b"c2"], [b"b1", b"b2", b"d1", b"d2"]]
    assert len(list((tmp_path / "kept").iterdir())) == 4
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    by_data = Dataset.range(6).map(lambda x: x).cache(tmp_path / "numbers").with_options(options)
    for _ in range(2):
        assert [lists(auto_shard(by_data, 2, index)) for index in range(2)] == [
            [0, 2, 4],
            [1, 3, 5],
        ]


def test_saved_elements_are_loaded_with_their_specs(tmp_path: Path) -> None:
    dataset = Dataset.from_tensor_slices({"x": np.arange(5.0), "n": ["a"] * 5}).batch(2)
    dataset.save(tmp_path / "saved")
    loaded = Dataset.load(str(tmp_path / "saved"))
    assert loaded.element_spec == dataset.element_spec
    assert len(loaded) == 3
    assert [plain(element) for element in loaded] == [plain(element) for element in dataset]
    dataset.take(1).save(tmp_path / "saved")
    assert len(Dataset.load(tmp_path / "saved")) == 1
    pairs = Dataset.from_tensor_slices(Pair(np.arange(3), np.arange(3)))
    pairs.save(tmp_path / "pairs")
    assert next(iter(Dataset.load(tmp_path / "pairs"))).left == 0
    (first, *_) = Dataset.load(tmp_path / "pairs", pairs.element_spec)
    assert isinstance(first, Pair)


def test_endless_save_and_missing_load_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="with an end"):
        Dataset.range(3).repeat().save(tmp_path)
    with pytest.raises(InvalidArgumentError, match="no dataset that was saved"):
        Dataset.load(tmp_path / "nowhere")
    with pytest.raises(UnsupportedError, match="no meaning"):
        Dataset.load(tmp_path, wait=True)

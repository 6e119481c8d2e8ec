"""Order operations, in any order, against a pure-Python reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import Dataset

_ROWS = 11

_SINGLE_OPS = st.one_of(
    st.tuples(st.just("take"), st.integers(-1, 30)),
    st.tuples(st.just("skip"), st.integers(0, 12)),
    st.tuples(st.just("repeat"), st.integers(0, 3)),
    st.tuples(st.just("shard"), st.integers(1, 3)),
)
_OPS = st.one_of(_SINGLE_OPS, st.tuples(st.just("map"), st.just(0)))


def _dataset() -> tuple[Dataset, list[Any]]:
    rows = np.arange(_ROWS * 2, dtype=np.float32).reshape(_ROWS, 2)
    return Dataset.from_tensor_slices((rows, np.arange(_ROWS))), list(range(_ROWS))


def _apply(dataset: Dataset, rows: list[Any], op: tuple[str, int]) -> Any:
    """Applies one operation to the dataset and to the list of row numbers."""
    name, n = op
    if name == "take":
        return dataset.take(n), rows if n < 0 else rows[:n]
    if name == "skip":
        return dataset.skip(n), rows[n:]
    if name == "repeat":
        return dataset.repeat(n), rows * n
    if name == "shard":
        return dataset.shard(n, n - 1), rows[n - 1 :: n]
    if name == "map":
        return dataset.map(lambda x, i: (x, i)), rows
    batches = [rows[i : i + n] for i in range(0, len(rows), n)]
    if name == "batch":
        return dataset.batch(n), batches
    return dataset.batch(n, drop_remainder=True), [b for b in batches if len(b) == n]


def _check(dataset: Dataset, rows: list[Any]) -> None:
    """Values, indices, cardinality and specs all agree with the list of row numbers."""
    elements = list(dataset.elements())
    assert [np.asarray(e.value[1]).tolist() for e in elements] == rows
    for element in elements:
        x, i = element.value
        assert element.indices is not None
        assert element.indices.dtype == np.int64
        np.testing.assert_array_equal(element.indices, np.ravel(i))
        np.testing.assert_array_equal(x[..., 0], 2 * np.asarray(i))
        spec, _ = dataset.element_spec
        assert len(spec.shape) == x.ndim
        assert all(a is None or a == b for a, b in zip(spec.shape, x.shape, strict=True))
        assert spec.dtype == x.dtype
    assert dataset.cardinality() == len(rows)


@settings(max_examples=30, deadline=None)
@given(
    before=st.lists(_OPS, max_size=4),
    batch=st.tuples(st.sampled_from(["batch", "batch_drop"]), st.integers(1, 6)),
    after=st.lists(_OPS, max_size=3),
)
def test_operations_in_any_order_equal_the_reference(
    before: list[tuple[str, int]], batch: tuple[str, int], after: list[tuple[str, int]]
) -> None:
    dataset, rows = _dataset()
    for op in [*before, batch, *after]:
        dataset, rows = _apply(dataset, rows, op)
    _check(dataset, rows)


@settings(max_examples=25, deadline=None)
@given(
    before=st.lists(_SINGLE_OPS, max_size=3),
    window=st.integers(1, 40),
    after=st.lists(_OPS, max_size=2),
    batch=st.integers(1, 5),
)
def test_shuffled_indices_point_at_the_right_rows(
    before: list[tuple[str, int]], window: int, after: list[tuple[str, int]], batch: int
) -> None:
    dataset, rows = _dataset()
    for op in before:
        dataset, rows = _apply(dataset, rows, op)
    shuffled = dataset.shuffle(window, seed=3, reshuffle_each_iteration=False)
    order = [int(i) for _, i in shuffled]
    assert sorted(order) == sorted(rows)
    for op in after:
        shuffled, order = _apply(shuffled, order, op)
    _check(shuffled, order)
    _check(*_apply(shuffled, order, ("batch", batch)))

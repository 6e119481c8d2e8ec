"""Elements of every structure pass every verb unchanged, containers of one and none included."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.data import Dataset
from distlab.errors import StructureError, ValueShapeError
from tests.data.structures import fill, leaves, plain, rebuild, row, structures

ROWS = 7
quick = settings(max_examples=20, deadline=None)


def _rows(dataset: Any) -> list[Any]:
    return [plain(element) for element in dataset]


def test_a_list_is_one_component() -> None:
    assert _rows(Dataset.from_tensor_slices(([1, 2], [[3], [4]]))) == [
        ("tuple", 1, [3]),
        ("tuple", 2, [4]),
    ]
    assert _rows(Dataset.from_tensors(({"k": [1, 2]}, [3]))) == [("tuple", {"k": [1, 2]}, [3])]


def _same(dataset: Dataset) -> Dataset:
    return dataset


VERBS: dict[str, Callable[[Dataset], Dataset]] = {
    "nothing": _same,
    "map": lambda d: d.map(lambda *parts: parts if len(parts) > 1 else parts[0]),
    "batch, unbatch": lambda d: d.batch(3).unbatch(),
    "batch, rebatch, unbatch": lambda d: d.batch(3).rebatch(2).unbatch(),
    "shuffle": lambda d: d.shuffle(1),
    "repeat": lambda d: d.repeat(1),
    "prefetch": lambda d: d.batch(2).prefetch(1).unbatch(),
    "take": lambda d: d.take(ROWS),
    "take and skip": lambda d: d.take(3).concatenate(d.skip(3)),
    "filter": lambda d: d.filter(lambda *_: True),
    "enumerate": lambda d: d.enumerate().map(lambda _, element: element),
    "zip": lambda d: Dataset.zip((d,)).map(lambda element: element),
    "flat_map": lambda d: d.batch(2).flat_map(
        lambda *parts: Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])
    ),
    "interleave": lambda d: d.interleave(
        lambda *parts: Dataset.from_tensors(parts if len(parts) > 1 else parts[0]), 2, 1
    ),
    "generator": lambda d: Dataset.from_generator(lambda: iter(d)),
    "shard": lambda d: d.shard(1, 0),
    "cache": lambda d: d.filter(lambda *_: True).cache(),
    "take_while": lambda d: d.take_while(lambda *_: True),
    "sample": lambda d: Dataset.sample_from_datasets([d, d.take(0)], seed=1),
    "choose": lambda d: Dataset.choose_from_datasets([d], Dataset.range(1).repeat(ROWS)),
    "groups": lambda d: d.group_by_window(lambda *_: 0, lambda _, window: window, 2),
    "padded": lambda d: d.padded_batch(2).unbatch(),
    "parallel": lambda d: d.enumerate().map(lambda _, e: e, num_parallel_calls=2),
}


UNPACKING = {"map", "flat_map", "interleave"}


@settings(max_examples=70, deadline=None)
@given(verb=st.sampled_from(sorted(VERBS)), structure=structures(), as_lists=st.booleans())
def test_verbs_keep_the_structure(verb: str, structure: Any, as_lists: bool) -> None:
    arrays = fill(structure, ROWS)
    source = fill(structure, ROWS, as_lists=as_lists)
    # A function gets the parts of a tuple as arguments, so a tuple of one arrives unpacked.
    assume(verb not in UNPACKING or type(structure) is not tuple or len(structure) > 1)
    made = VERBS[verb](Dataset.from_tensor_slices(source))
    assert _rows(made) == [row(arrays, i) for i in range(ROWS)]
    assert _rows(made.map(lambda *_: ())) == [("tuple",)] * ROWS
    example = next(iter(made))
    assert rebuild(lambda spec: spec.rank, made.element_spec) == rebuild(np.ndim, example)


@quick
@given(structure=structures())
def test_batches_keep_the_structure(structure: Any) -> None:
    arrays = fill(structure, ROWS)
    expected = [plain(rebuild(itemgetter(slice(i, i + 3)), arrays)) for i in (0, 3, 6)]
    rows = Dataset.from_tensor_slices(arrays)
    assert _rows(rows.batch(3)) == expected
    assert _rows(rows.map(lambda *p: p if len(p) > 1 else p[0]).batch(3)) == (
        expected if type(arrays) is not tuple or len(arrays) > 1 else [part[1] for part in expected]
    )
    assert _rows(Dataset.from_tensors(arrays)) == [plain(arrays)]
    assert _rows(rows.shuffle(ROWS, seed=3).batch(ROWS).map(lambda *_: 0)) == [0]


@pytest.mark.slow
@settings(max_examples=6, deadline=None, phases=[Phase.generate, Phase.shrink])
@given(
    structure=structures("if"),
    replicas=st.integers(2, 3),
    rows=st.integers(1, 7),
    batch=st.integers(1, 4),
)
def test_distributed_elements_keep_the_structure(
    structure: Any, replicas: int, rows: int, batch: int
) -> None:
    strategy = dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    arrays = fill(structure, rows)
    dataset = Dataset.from_tensor_slices(arrays).batch(batch)
    distributed = strategy.experimental_distribute_dataset(dataset)
    starts = range(0, rows, batch)
    for start, element in zip(starts, distributed, strict=True):
        expected = plain(rebuild(itemgetter(slice(start, start + batch)), arrays))
        assert plain(strategy.gather(element, axis=0)) == expected
        results = strategy.run(lambda x: x, args=(element,))
        assert plain(strategy.gather(results, axis=0)) == expected
        parts = strategy.experimental_local_results(element)
        assert len(parts) == replicas
        joined = rebuild_together(parts)
        assert plain(joined) == expected
        sums = strategy.reduce("SUM", strategy.run(_totals, args=(element,)), axis=None)
        # Sums of so few small numbers are exact in float32.
        totals = rebuild(lambda a: float(np.sum(a[start : start + batch])), arrays)  # noqa: B023
        assert plain(sums) == plain(totals)


@pytest.mark.parametrize("kind", [types.MappingProxyType, collections.UserDict])
def test_other_mappings_are_distributed_as_dicts(kind: Any) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = np.arange(4, dtype=np.int32)
    dataset = Dataset.from_tensor_slices((x, kind({"k": kind({"l": x})}))).batch(4)
    assert isinstance(next(iter(dataset))[1], kind | dict)
    expected = ("tuple", [0, 1, 2, 3], {"k": {"l": [0, 1, 2, 3]}})
    for distributed in (
        strategy.experimental_distribute_dataset(dataset),
        strategy.distribute_datasets_from_function(lambda _: dataset.rebatch(2)),
    ):
        (element,) = distributed
        assert plain(strategy.gather(element, axis=0)) == expected


def _totals(element: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.sum().astype("float32"), element)


def rebuild_together(parts: tuple[Any, ...]) -> Any:
    """Returns the rows of the replicas' parts, joined."""
    columns = iter(zip(*map(leaves, parts), strict=True))
    return rebuild(lambda _: np.concatenate([np.asarray(x) for x in next(columns)]), parts[0])


NUMBER, FRACTION, TEXT = np.int64(2**53 + 1), np.float32(0.5), "a"
PAIR = (np.int64(1), np.int64(2))


@pytest.mark.parametrize(
    ("first", "later", "error", "rule"),
    [
        (NUMBER, FRACTION, ValueShapeError, "one dtype, got float32, int64.*astype"),
        (NUMBER, TEXT, ValueShapeError, "one dtype, got int64, string"),
        (NUMBER, PAIR, StructureError, r"one structure, got \* and \(\*, \*\)"),
        (PAIR, NUMBER, StructureError, "one structure"),
    ],
)
def test_elements_that_are_not_alike_make_no_batch(
    first: Any, later: Any, error: type[Exception], rule: str
) -> None:
    """Numbers lost digits in the common dtype, and texts lay among them as objects."""
    mixed = Dataset.range(3).map(lambda n: first if n < 2 else later)
    for verb in (mixed.batch, mixed.padded_batch):
        with pytest.raises(error, match=rule):
            list(verb(3))
        assert len(list(verb(2).take(1))) == 1

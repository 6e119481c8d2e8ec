"""state and restore: exact for every operation and at every place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distlab.data import AUTOTUNE, Dataset, TextLineDataset, as_dataset, auto_shard
from distlab.errors import InvalidArgumentError, OneShotError


def _files(folder: Path) -> Dataset:
    for number in range(3):
        (folder / f"{number}.txt").write_text("".join(f"{number}{i}\n" for i in range(4)))
    return Dataset.list_files(str(folder / "*.txt"), seed=1)


_PIPELINES: dict[str, Callable[[Path], Dataset]] = {
    "window": lambda _: Dataset.range(17).shuffle(5, seed=1).repeat(3).batch(4),
    "steady": lambda _: Dataset.range(7).take(5).repeat(4).skip(2).shard(2, 1).batch(3),
    "nested": lambda _: Dataset.range(5).shuffle(5, seed=1).repeat(2).shuffle(4).repeat(2),
    "late": lambda _: Dataset.range(9).batch(2).shuffle(3, seed=1).repeat(2).take(7),
    "values": lambda _: Dataset.range(9).map(lambda x: x * 2).shuffle(4, seed=1).repeat(2).skip(3),
    "filter": lambda _: Dataset.range(20).filter(lambda x: x % 3 != 0).shard(2, 0).batch(2),
    "unbatch": lambda _: Dataset.range(9).batch(4).unbatch().batch(2).map(lambda x: x),
    "rebatch": lambda _: Dataset.range(11).map(lambda x: x).batch(4).rebatch([3, 0, 1]),
    "enumerate": lambda _: Dataset.range(6).shuffle(6, seed=1).enumerate().prefetch(2),
    "zip": lambda _: Dataset.zip(Dataset.range(6).shuffle(3, seed=1), Dataset.range(9)),
    "joined": lambda _: Dataset.range(4).concatenate(Dataset.range(7).shuffle(7, seed=1)).batch(3),
    "interleave": lambda _: Dataset.range(6).interleave(
        lambda x: Dataset.range(x).shuffle(3, seed=2), cycle_length=3, block_length=2
    ),
    "generator": lambda _: Dataset.from_generator(lambda: iter(range(9))).batch(2).prefetch(1),
    "windows": lambda _: (
        Dataset.range(17)
        .shuffle(4, seed=1)
        .repeat(2)
        .window(5, shift=2, stride=2)
        .flat_map(lambda w: w.batch(5))
    ),
    "windows apart": lambda _: Dataset.range(17).window(2, shift=5).map(tuple).repeat(2).batch(1),
    "padded": lambda _: Dataset.range(7).map(np.ones).shuffle(3, seed=1).padded_batch(3),
    "take while": lambda _: Dataset.range(9).map(lambda x: x).take_while(lambda x: x < 4).repeat(2),
    "groups": lambda _: (
        Dataset.range(11)
        .shuffle(4, seed=1)
        .group_by_window(lambda x: x % 2, lambda _, w: w.shuffle(4, seed=2).batch(3), 3)
        .repeat(2)
    ),
    "buckets": lambda _: (
        Dataset.range(11).map(np.zeros).bucket_by_sequence_length(len, [3, 6], [3, 2, 1])
    ),
    "sampled": lambda _: Dataset.sample_from_datasets(
        [Dataset.range(5).repeat(2), Dataset.range(10, 20).shuffle(4, seed=1)],
        [0.3, 0.7],
        seed=5,
        rerandomize_each_iteration=True,
    ).repeat(2),
    "chosen": lambda _: Dataset.choose_from_datasets(
        [Dataset.range(3), Dataset.range(10, 20)],
        Dataset.range(2).shuffle(2, seed=1).repeat(9),
        stop_on_empty_dataset=False,
    ).batch(2),
    "counter": lambda _: Dataset.counter(3).take(5).repeat(2),
    "parallel map": lambda _: (
        Dataset.range(9).shuffle(3, seed=1).map(lambda x: x * 2, num_parallel_calls=3).repeat(2)
    ),
    "automatic map": lambda _: Dataset.range(9).map(lambda x: x * 2, num_parallel_calls=AUTOTUNE),
    "parallel interleave": lambda _: Dataset.range(6).interleave(
        lambda x: Dataset.range(x).shuffle(3, seed=2), 3, 2, num_parallel_calls=2
    ),
    "cached in a file": lambda folder: (
        Dataset.range(9).map(lambda x: x).shuffle(4, seed=1).cache(folder / "kept").repeat(2)
    ),
    "cached in memory": lambda _: (
        Dataset.range(9).map(lambda x: x).cache().shuffle(4, seed=1).repeat(2).batch(2)
    ),
    "files": lambda folder: TextLineDataset(_files(folder)).repeat(2).batch(3),
    "sharded files": lambda folder: auto_shard(TextLineDataset(_files(folder)), 2, 0),
}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bytes) else np.asarray(value).tolist()


@pytest.mark.parametrize("make", _PIPELINES.values(), ids=_PIPELINES.keys())
def test_a_position_or_a_close_changes_no_element(
    make: Callable[[Path], Dataset], tmp_path: Path
) -> None:
    dataset = make(tmp_path)
    iterator = iter(dataset)
    states, values = [], []
    while True:
        states.append(json.dumps(iterator.state()))  # so it survives any checkpoint
        try:
            values.append(_plain(next(iterator)))
        except StopIteration:
            break
    assert values
    other = iter(make(tmp_path))
    next(other)
    for place, state in reversed(list(enumerate(states))):
        other.restore(json.loads(state))
        assert [_plain(value) for value in other] == values[place:]
    closed = iter(dataset)
    closed.restore(json.loads(states[0]))
    for value in values:
        closed.close()
        assert _plain(next(closed)) == value


def test_a_closed_iterator_over_what_is_read_once_says_so() -> None:
    iterator = iter(as_dataset(x for x in range(4)))
    assert int(next(iterator)) == 0
    iterator.close()
    for _ in range(2):
        with pytest.raises(OneShotError, match="only once"):
            next(iterator)


def test_going_to_a_far_place_costs_no_reading() -> None:
    dataset = Dataset.range(1000).shuffle(1000, seed=1).repeat().batch(7)
    iterator = iter(dataset)
    state = iterator.state()
    state["reader"]["given"] = 7 * 10**12
    iterator.restore(state)
    assert len(next(iterator)) == 7
    assert iterator.state()["reader"]["given"] == 7 * 10**12 + 7


@pytest.mark.parametrize(
    ("saved", "other", "said"),
    [
        (Dataset.range(9).shuffle(3, 1), Dataset.range(9).shuffle(4, 1), "from 3 .* from 4"),
        (Dataset.range(9), Dataset.range(3), "after 5 elements, and this dataset has 3"),
        (
            Dataset.range(9),
            Dataset.range(9).concatenate(Dataset.from_generator(range(9).__iter__, np.int64)),
            "of other operations than those of this dataset.*'given': 5",
        ),
    ],
    ids=["window", "fewer elements", "concatenate"],
)
def test_position_that_does_not_fit_is_refused_without_harm(
    saved: Dataset, other: Dataset, said: str
) -> None:
    first = iter(saved)
    for _ in range(5):
        next(first)
    iterator = iter(other)
    next(iterator)
    with pytest.raises(InvalidArgumentError, match=said):
        iterator.restore(first.state())
    start = iterator.state()
    followed = next(iterator)
    iterator.restore(start)
    assert next(iterator) == followed


def test_a_position_saved_before_windows_were_kept_is_accepted() -> None:
    dataset = Dataset.range(9).shuffle(9, 1)
    first = iter(dataset)
    next(first)
    state = first.state()
    state["shuffles"] = [shuffle[:2] for shuffle in state["shuffles"]]
    second = iter(dataset)
    second.restore(state)
    assert list(second) == list(first)

"""Batches of several datasets: their names, and the choice of one of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from distlab.events import Event, Sharding
from distlab.folds import Batches, Folds, part_of_batches
from tests.recording import samples
from tests.synthetic import compiled


def batches_of(
    dataset: int,
    function: int | None,
    count: int,
    *,
    source: str = "",
    name: str = "",
    size: int = 4,
    indices: int = 0,
) -> Iterator[Event]:
    """Batches of one dataset, each received by the program with the number of a function."""
    for batch in range(count):
        made = samples.sharding(batch, bytes(8 * indices) if indices else None)
        yield msgspec.structs.replace(
            made, dataset=dataset, sizes=[size, size], nominal=size, source=source, name=name
        )
        if function is not None:
            yield msgspec.structs.replace(samples.step(0), program=function, examples=2 * size)


def program(number: int, function: str) -> Event:
    return msgspec.structs.replace(compiled(2), program=number, function=function)


TRAIN, TEST = program(0, "train_step"), program(1, "test_step")


def fold_of(*events: Event | Iterator[Event]) -> Batches:
    fold = Batches()
    for one in events:
        fold.add([one] if isinstance(one, Event) else list(one))
    return fold


def test_datasets_are_named_by_user_function_and_line_or_number() -> None:
    columns = fold_of(
        TRAIN,
        TEST,
        batches_of(0, 0, 3, source="train.py:7", name="digits"),
        batches_of(1, 1, 2, source="train.py:9"),
        batches_of(2, 1, 1),
        batches_of(3, None, 1, source="train.py:20"),
        batches_of(4, None, 1),
    ).columns()
    assert columns["datasets"] == [
        "digits, train.py:7",
        "test_step, train.py:9",
        "test_step",
        "train.py:20",
        "dataset 4",
    ]
    assert columns["dataset_counts"] == [3, 2, 1, 1, 1]
    assert columns["dataset"].tolist() == [0, 0, 0, 1, 1, 2, 3, 4]
    assert columns["main"] == 0


def test_new_datasets_of_one_line_and_function_are_one() -> None:
    events = [TRAIN, TEST]
    for epoch in range(3):
        events += batches_of(2 * epoch, 0, 4, source="data.py:3")
        events += batches_of(2 * epoch + 1, 1, 2, source="data.py:3")
    columns = fold_of(*events).columns()
    assert columns["datasets"] == ["train_step, data.py:3", "test_step, data.py:3"]
    assert columns["dataset_counts"] == [12, 6]
    assert columns["dataset"].tolist() == [0, 0, 0, 0, 1, 1] * 3


def test_a_dataset_that_two_functions_receive_is_one() -> None:
    columns = fold_of(
        TRAIN, TEST, batches_of(0, 0, 3, source="a:1"), batches_of(0, 1, 2, source="a:1")
    ).columns()
    assert columns["datasets"] == ["train_step and test_step, a:1"]


def test_newest_batch_of_main_dataset_is_shown_after_evaluation() -> None:
    fold = fold_of(
        TRAIN, TEST, batches_of(0, 0, 5, source="a:1"), batches_of(1, 1, 2, source="a:2")
    )
    main = fold.detail(None, fold.main)
    assert main is not None
    assert (main["number"], main["dataset"]) == (4, 0)
    newest = fold.detail()
    assert newest is not None
    assert (newest["number"], newest["dataset"]) == (6, 1)


@pytest.mark.parametrize(
    ("number", "dataset", "shown"),
    [(None, 1, 7), (0, 1, 2), (4, 1, 3), (9, 1, 7), (7, 0, 5), (3, None, 3), (2, 9, None)],
)
def test_a_batch_is_looked_for_in_its_dataset(
    number: int | None, dataset: int | None, shown: int | None
) -> None:
    fold = fold_of(
        TRAIN,
        TEST,
        *(batches_of(kind, kind, 2, source=f"a:{kind}") for _ in range(2) for kind in (0, 1)),
    )
    detail = fold.detail(number, dataset)
    assert (detail and detail["number"]) == shown


def test_only_the_batches_of_one_dataset_are_in_its_columns() -> None:
    fold = fold_of(
        TRAIN, TEST, batches_of(0, 0, 2, source="a:1"), batches_of(1, 1, 3, source="a:2", size=5)
    )
    whole = fold.columns()
    part = part_of_batches(whole, 1)
    assert part["number"].tolist() == [2, 3, 4]
    assert part["examples"].tolist() == [10] * 3
    assert part["count"] == whole["count"] == 5
    assert part_of_batches(whole) is whole


def test_the_newest_batch_of_a_dataset_is_not_forgotten() -> None:
    fold = Batches(most_bytes=20_000)
    fold.add([TRAIN, TEST, *batches_of(0, 0, 2, source="a:1", indices=8)])
    fold.add(list(batches_of(1, 1, 500, source="a:2", indices=8)))
    assert fold.columns()["forgotten"] > 0
    detail = fold.detail(None, 0)
    assert detail is not None
    assert detail["number"] == 1
    assert np.isin(1, fold.columns()["number"])


def test_a_batch_of_a_mesh_has_a_row_for_each_part() -> None:
    batch = Sharding(
        time_ns=1, strategy=0, dataset=0, batch=0, epoch=0, sizes=[], nominal=16, indices=None,
        bytes=64, wait_ns=0, transfer_ns=0, policy="rebatch",
        mesh={"data": 2, "model": 4, "seq": 2}, spec=[["data", "seq"], ["model"]],
        shape=[64, 8],
    )  # fmt: skip
    folds = Folds()
    folds.add([batch])
    detail = folds.batch()
    assert detail is not None
    assert detail["replica"] == ["data 0, seq 0", "data 0, seq 1", "data 1, seq 0", "data 1, seq 1"]
    assert detail["size"] == [16] * 4
    assert folds.columns("batches")["examples"].tolist() == [64]
    assert not folds.columns("batches")["uneven"].any()
    assert folds.evidence.columns()["batches"]["sizes"] == [[16] * 4]


@pytest.mark.parametrize(
    ("sizes", "nominal", "uneven"),
    [
        ([22, 22, 20], 22, False),  # a full batch of 64
        ([22, 21, 20], 22, True),  # 63 are 21 each
        ([3, 3, 3, 3, 3, 3, 2, 0], 3, True),
        ([8, 8], 8, False),
        ([1, 1], 8, True),
    ],
)
def test_a_full_batch_that_divides_unequally_is_not_uneven(
    sizes: list[int], nominal: int, uneven: bool
) -> None:
    made = msgspec.structs.replace(samples.sharding(0), sizes=sizes, nominal=nominal)
    fold = fold_of(made)
    assert fold.columns()["uneven"].tolist() == [uneven]
    detail = fold.detail()
    assert detail is not None
    assert detail["uneven"] is uneven

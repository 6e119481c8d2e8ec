"""Batches and previews that do not belong together are drawn without each other."""

from __future__ import annotations

import numpy as np
import pytest

from distlab.charts import BatchTiles
from distlab.events import Preview, Sharding
from distlab.folds import Batches, part_of_batch


def _positions(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def _batch(sizes: list[int], indices: bytes | None) -> Sharding:
    return Sharding(
        time_ns=0,
        strategy=0,
        dataset=0,
        batch=0,
        epoch=0,
        sizes=sizes,
        nominal=2,
        indices=indices,
        bytes=8,
        wait_ns=0,
        transfer_ns=0,
        policy="rebatch",
    )


def _preview(indices: bytes, pixels: int, labels: list[str], batch: int | None) -> Preview:
    return Preview(
        time_ns=0,
        dataset=0,
        batch=batch,
        epoch=0,
        indices=indices,
        form="image",
        shape=[1, 1],
        data=bytes(range(pixels)),
        labels=labels,
    )


@pytest.mark.parametrize("indices", [None, b"", _positions(0, 1), _positions(*range(9))])
@pytest.mark.parametrize("previewed", [_positions(0, 1, 2, 3), _positions(7), _positions(-1, 2)])
@pytest.mark.parametrize("labels", [[], ["a"]])
@pytest.mark.parametrize("batch", [None, 0])
def test_a_batch_with_other_positions_than_examples_is_drawn(
    indices: bytes | None, previewed: bytes, labels: list[str], batch: int | None
) -> None:
    fold = Batches()
    fold.add([_preview(previewed, len(previewed) // 8, labels, batch), _batch([2, 1], indices)])
    detail = fold.detail()
    assert detail is not None
    assert detail["index"] is None
    assert len(detail["known"]) == len(detail["label"]) == len(detail["pixels"]) == 3
    BatchTiles().update(part_of_batch(detail))


def test_a_preview_with_other_pixels_than_examples_is_left_out() -> None:
    fold = Batches()
    fold.add([_preview(_positions(0, 1), 3, [], None), _batch([1, 1], _positions(0, 1))])
    detail = fold.detail()
    assert detail is not None
    assert detail["known"].tolist() == [False, False]


def test_an_example_without_a_label_of_its_own_has_none() -> None:
    fold = Batches()
    fold.add([_preview(_positions(0, 1), 2, ["cat"], None), _batch([1, 1], _positions(0, 1))])
    detail = fold.detail()
    assert detail is not None
    assert detail["label"] == ["cat", ""]
    assert detail["known"].tolist() == [True, True]

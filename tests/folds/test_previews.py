"""Batches and previews that do not belong together are drawn without each other."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from distlab.charts import BatchTiles
from distlab.events import Preview, Sharding
from distlab.folds import Batches, part_of_batch
from tests.recording import samples


def _positions(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def _batch(sizes: list[int], indices: bytes | None) -> Sharding:
    return structs.replace(samples.sharding(0, indices), sizes=sizes, nominal=2)


def _preview(indices: bytes, pixels: int, labels: list[str]) -> Preview:
    made = samples.preview(bytes(range(pixels)))
    return structs.replace(made, indices=indices, shape=[1, 1], labels=labels)


@pytest.mark.parametrize("indices", [None, _positions(0, 1), _positions(*range(9))])
@pytest.mark.parametrize("previewed", [_positions(0, 1, 2, 3), _positions(-1, 2)])
def test_a_batch_with_other_positions_than_examples_is_drawn(
    indices: bytes | None, previewed: bytes
) -> None:
    fold = Batches()
    fold.add([_preview(previewed, len(previewed) // 8, ["a"]), _batch([2, 1], indices)])
    detail = fold.detail()
    assert detail is not None
    assert detail["index"] is None
    assert len(detail["known"]) == len(detail["label"]) == len(detail["pixels"]) == 3
    BatchTiles().update(part_of_batch(detail))


def test_an_example_without_a_label_of_its_own_has_none() -> None:
    fold = Batches()
    fold.add([_preview(_positions(0, 1), 2, ["cat"]), _batch([1, 1], _positions(0, 1))])
    detail = fold.detail()
    assert detail is not None
    assert detail["label"] == ["cat", ""]
    assert detail["known"].tolist() == [True, True]


@pytest.mark.parametrize("shape", [[0, 1 << 16], [1, 1 << 12]])
def test_previews_larger_than_any_recorded_are_left_out(shape: list[int]) -> None:
    fold, data = Batches(), bytes(shape[0] * shape[1])
    fold.add([structs.replace(_preview(_positions(0), 1, []), shape=shape, data=data)])
    fold.add([_batch([1], _positions(0))])
    detail = fold.detail()
    assert detail is not None
    assert detail["form"] == ""


def test_a_batch_too_large_for_previews_is_shown_without() -> None:
    fold = Batches()
    preview = _preview(_positions(0), 1, [])
    fold.add([structs.replace(preview, shape=[64, 64], data=bytes(64 * 64), batch=0)])
    fold.add([structs.replace(_batch([1 << 20], None), batch=0, epoch=preview.epoch)])
    detail = fold.detail()
    assert detail is not None
    assert (detail["size"], detail["form"], detail["pixels"].nbytes) == ([1 << 20], "", 0)

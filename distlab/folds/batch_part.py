"""The batches of one dataset, and a part of a batch that has too many replicas to draw."""

from __future__ import annotations

from typing import Final

from distlab.folds.accepted import require_columns, require_number
from distlab.folds.batches import BatchColumns, BatchDetail

MOST_DRAWN: Final = 32
"""Most replicas of a batch that are drawn at once."""


def part_of_batch(
    detail: BatchDetail | None, first: int = 0, most: int = MOST_DRAWN
) -> BatchDetail | None:
    """Returns a batch as some neighbouring replicas received it.

    Args:
      detail: The batch, or None.
      first: Number of the first replica; the last `most` replicas when it is higher.
      most: How many replicas; a batch with no more is returned unchanged.

    Returns:
      The batch with these replicas and their examples alone, and with `whole_size`.

    Raises:
      ArgumentTypeError: `detail` is no batch, or a number no whole number.
      ArgumentValueError: A number is too small.
    """
    require_number("part_of_batch", "first", first, optional=False)
    require_number("part_of_batch", "most", most, least=1, optional=False)
    if detail is not None:
        require_columns("part_of_batch", detail, BatchDetail, "Folds.batch()")
    if detail is None or len(detail["replica"]) <= most:
        return detail
    first = min(first, len(detail["replica"]) - most)
    last = first + most
    begin, end = sum(detail["size"][:first]), sum(detail["size"][:last])
    index = detail["index"]
    return {
        **detail,
        "replica": detail["replica"][first:last],
        "size": detail["size"][first:last],
        "whole_size": sum(detail["size"]),
        "index": None if index is None else index[begin:end],
        "pixels": detail["pixels"][begin:end],
        "known": detail["known"][begin:end],
        "label": detail["label"][begin:end],
    }


def part_of_batches(batches: BatchColumns, dataset: int | None = None) -> BatchColumns:
    """Returns the batches of one dataset.

    Args:
      batches: All batches.
      dataset: The dataset's number; None for all datasets.

    Returns:
      The columns with the rows of these batches; the totals are those of all.

    Raises:
      ArgumentTypeError: `batches` are no columns of batches, or `dataset` is no number.
      ArgumentValueError: `dataset` is negative.
    """
    require_columns("part_of_batches", batches, BatchColumns, "Folds.columns('batches')")
    require_number("part_of_batches", "dataset", dataset)
    if dataset is None:
        return batches
    rows = batches["dataset"] == dataset
    return {
        **batches,
        "number": batches["number"][rows],
        "epoch": batches["epoch"][rows],
        "batch": batches["batch"][rows],
        "dataset": batches["dataset"][rows],
        "examples": batches["examples"][rows],
        "uneven": batches["uneven"][rows],
        "wait_ms": batches["wait_ms"][rows],
        "transfer_ms": batches["transfer_ms"][rows],
    }

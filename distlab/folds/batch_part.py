"""A part of a batch that has too many replicas to draw."""

from __future__ import annotations

from typing import Final

from distlab.folds.batches import BatchDetail

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
    """
    if detail is None or len(detail["replica"]) <= most:
        return detail
    first = min(max(0, first), len(detail["replica"]) - most)
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

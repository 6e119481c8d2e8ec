"""Some replicas of a batch that has too many to draw."""

from __future__ import annotations

from typing import Final

from distlab.folds._fold import Columns

MOST_DRAWN: Final = 32
"""Replicas of which all are drawn; of more, so many at a time."""


def part_of_batch(detail: Columns, first: int = 0, most: int = MOST_DRAWN) -> Columns:
    """Returns a batch as some neighbouring replicas got it.

    Args:
      detail: what `Batches.detail` returned.
      first: number of the first replica, cut to those there are.
      most: how many replicas; a batch with no more is returned as it is.

    Returns:
      The same columns for these replicas and their examples alone, and
      `whole_size`, the number of examples of the whole batch.
    """
    replicas = len(detail.get("replica", ()))
    if replicas <= most:
        return detail
    first = min(max(0, first), replicas - most)
    last = first + most
    begin, end = sum(detail["size"][:first]), sum(detail["size"][:last])
    part = {
        **detail,
        "replica": detail["replica"][first:last],
        "size": detail["size"][first:last],
        "whole_size": sum(detail["size"]),
    }
    for name in ("index", "pixels", "known", "label"):
        if detail[name] is not None:
            part[name] = detail[name][begin:end]
    return part

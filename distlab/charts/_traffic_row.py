"""One row of the table of reductions, as the chart of its transfers needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from distlab.folds import ProgramColumns, ReductionColumns
from distlab.text.units import plain


class TrafficRow(TypedDict):
    """One kind of reduction, as `Traffic` draws it.

    Attributes:
      kind: `"all-reduce"`, ... of a compiled program, or what was called from Python.
      how: The algorithm of a call from Python, empty inside a program.
      where: `"inside FUNCTION"` or `"from Python"`.
      bytes: Bytes of the operand on one device.
      participants: How many devices take part.
      group: How many of them work together.
      device: Names of the devices in replica order, empty when unknown.
    """

    kind: str
    how: str
    where: str
    bytes: int
    participants: int
    group: int
    device: list[str]


def traffic_row(
    reductions: ReductionColumns,
    place: int,
    *,
    programs: ProgramColumns | None = None,
    devices: Sequence[str] = (),
) -> TrafficRow | None:
    """Returns one kind of reduction for `Traffic` to draw.

    Args:
      reductions: Columns of `folds.Reductions`.
      place: Index of the row.
      programs: Columns of `folds.Programs`, which have the groups in which devices work
        together; without them all devices are one group.
      devices: Names of the devices that take part, in replica order.

    Returns:
      The reduction, None when there is no such row.

    Example:
      >>> from distlab.charts import traffic_row
      >>> from distlab.events import Reduction
      >>> from distlab.folds import Folds
      >>> folds = Folds()
      >>> folds.add([Reduction(
      ...     time_ns=0, strategy=0, verb="reduce", op="SUM", algorithm="to_one_device",
      ...     bytes=4_096, dtype="float32", participants=8, duration_ns=1_000)])
      >>> row = traffic_row(folds.columns("reductions"), 0)
      >>> row["kind"], row["how"], row["bytes"], row["participants"]
      ('reduce SUM', 'to one device', 4096, 8)
    """
    if place >= len(reductions["kind"]):
        return None
    inside, participants = reductions["inside"][place], reductions["participants"][place]
    group = _group(reductions, place, programs) if programs is not None and inside else 0
    return {
        "kind": reductions["kind"][place],
        "how": "" if inside else next(iter(reductions["how"][place]), ""),
        "where": plain(reductions["where"][place]),
        "bytes": reductions["bytes"][place],
        "participants": participants,
        "group": group or participants,
        "device": list(devices),
    }


def _group(reductions: ReductionColumns, place: int, programs: ProgramColumns) -> int:
    """Returns the size of a reduction's groups, 0 when unknown."""
    wanted = (
        reductions["where"][place],
        reductions["kind"][place],
        reductions["bytes"][place],
        reductions["participants"][place],
        reductions["dtype"][place],
    )
    for function, collectives in zip(programs["function"], programs["collectives"], strict=True):
        for one in collectives:
            where = f"inside {function}"
            if (where, one.kind, one.operand_bytes, one.participants, one.dtype) == wanted:
                return one.group
    return 0

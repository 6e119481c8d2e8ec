"""The table of compiled programs as text."""

from __future__ import annotations

from itertools import starmap
from typing import TypeAlias

from distlab.events import Collective
from distlab.folds import ProgramColumns
from distlab.text.bytes import bytes_text
from distlab.text.units import (
    count_text,
    dtype_text,
    duration_text,
    flops_text,
    plain,
    share_text,
)

Rows: TypeAlias = dict[str, list[str]]

NAMES = (
    *("function", "function_full", "why", "compiled", "steps", "work"),
    *("memory", "memory_full", "collectives", "collectives_full"),
)
_UNKNOWN = "\u2013"
_MOST_TEXT = 2_000


def program_rows(programs: ProgramColumns) -> Rows:
    """Returns the table's texts by column; columns that end in `_full` are tooltips."""
    arguments = [plain("; ".join(one), _MOST_TEXT) for one in programs["arguments"]]
    return {
        "function": [plain(name) for name in programs["function"]],
        "function_full": [
            f"{plain(source)}: {given}" if source else given
            for source, given in zip(programs["source"], arguments, strict=True)
        ],
        "why": list(starmap(_why, zip(programs["cause"], programs["changed"], strict=True))),
        "compiled": [
            f"at {at:.1f} s, in {duration_text(took)}"
            if at
            else f"before, in {duration_text(took)}"
            for at, took in zip(programs["at_s"], programs["compile_s"], strict=True)
        ],
        "steps": list(starmap(_steps, zip(programs["steps"], programs["share"], strict=True))),
        "work": [_UNKNOWN if flops is None else flops_text(flops) for flops in programs["flops"]],
        "memory": [_bytes(peak) for peak in programs["peak_bytes"]],
        "memory_full": [
            f"arguments {_bytes(given)}, outputs {_bytes(out)}, scratch {_bytes(scratch)}"
            for given, out, scratch in zip(
                programs["argument_bytes"],
                programs["output_bytes"],
                programs["temp_bytes"],
                strict=True,
            )
        ],
        "collectives": [
            ", ".join(map(_short, found)) or "none" for found in programs["collectives"]
        ],
        "collectives_full": [
            plain("; ".join(map(_long, found)), _MOST_TEXT) for found in programs["collectives"]
        ],
    }


def _steps(steps: int, share: float | None) -> str:
    return count_text(steps) if steps or share is None else f"{share_text(share)} of the time"


def _why(cause: str, changed: str) -> str:
    how = changed.replace("->", "\u2192")
    return plain(f"{cause}: {how}" if how else cause, 200)


def _bytes(size: int | None) -> str:
    return _UNKNOWN if size is None else bytes_text(size)


def _short(one: Collective) -> str:
    times = "?" if one.times_per_step is None else count_text(one.times_per_step)
    often = "" if times == "1" else f"{times} \u00d7 "
    return f"{often}{one.kind} of {bytes_text(one.operand_bytes)}"


def _long(one: Collective) -> str:
    wire = "" if one.wire_bytes is None else f", each device sends {bytes_text(one.wire_bytes)}"
    values = ", ".join(one.values) or dtype_text(one.dtype)
    axes = "+".join(one.axes)
    among = f"along {axes}" if axes else f"in groups of {one.group or one.participants}"
    return f"{_short(one)}: {values}{wire} ({among})"

"""What is inside a compiled program (read from it in a later commit)."""

from __future__ import annotations

from typing import Any, NamedTuple

from distlab.events import Collective


class ProgramContents(NamedTuple):
    """What `Compile` says of a program; None where it is not known."""

    collectives: list[Collective]
    flops: float | None = None
    bytes_accessed: float | None = None
    temp_bytes: int | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None


def read_program(*programs: Any) -> ProgramContents:
    """Returns what is known of the programs."""
    return ProgramContents([])

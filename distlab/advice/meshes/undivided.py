"""States that lie whole along an axis that divides the other states of a program.

An array whose sharding was forgotten is replicated in silence. Where an axis divides no states at
all, as in data parallel training, that is the author's choice.
"""

from __future__ import annotations

from typing import Final

from distlab.advice.meshes._programs import advice_on, divides_states, kept
from distlab.events import Advice, Compile
from distlab.meshes import blocks
from distlab.text.bytes import bytes_text

CAUSE: Final = "undivided_array"

_LEAST_BYTES: Final = 1 << 20
_NAMES: Final = 3


def on_program(program: Compile) -> Advice | None:
    """Finds the arrays of a program that an axis could divide, the axis that saves most."""
    found: list[tuple[int, str, list[str]]] = []
    for axis, size in program.mesh.items():
        if size < 2 or not divides_states(program, axis):
            continue
        whole = [
            one
            for one in kept(program)
            if one.bytes_per_device >= _LEAST_BYTES
            and axis in blocks.divisible_along(one.shape, one.spec or (), program.mesh)
        ]
        saved = sum(one.bytes_per_device * (size - 1) // size for one in whole)
        found.append((saved, axis, [one.name for one in whole]))
    saved, axis, names = max(found, default=(0, "", []))
    if not saved:
        return None
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return advice_on(
        program,
        CAUSE,
        f"{', '.join(names[:_NAMES])}{more} of {program.function} are replicated along {axis}, "
        f"which divides other states: {bytes_text(saved)} on each device could be saved.",
        f"Give them a PartitionSpec with {axis!r} where they are made, and in out_shardings.",
        saved_bytes=saved,
        arrays=len(names),
    )

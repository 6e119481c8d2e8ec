"""Devices that compute the same: an axis of the mesh divides nothing that they work on.

XLA counts the operations of the whole program and those of one device. Times the number of devices,
the latter is the former where all work is divided.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._texts import percent_text
from distlab.advice.meshes._programs import advice_on, axes_of
from distlab.events import Advice, Compile

CAUSE: Final = "repeated_work"

_TIMES: Final = 1.5
"""An optimizer's update, which data parallel devices repeat, is far less than half of a step."""

_FLOPS: Final = 1e6
"""Programs of fewer operations on a device take no time worth a remedy."""


def on_program(program: Compile) -> Advice | None:
    """Finds out whether the devices of a program repeat work."""
    times = program.computed_times or 0
    if times < _TIMES or (program.flops or 0) < _FLOPS:
        return None
    used = {axis for one in program.inputs for axis in axes_of(one)}
    idle = [axis for axis, size in program.mesh.items() if size > 1 and axis not in used]
    why = f"no input is divided along {' or '.join(idle)}" if idle else "parts of it are replicated"
    where = f"along {idle[0]}" if idle else "along the axes that its largest products leave out"
    return advice_on(
        program,
        CAUSE,
        f"{program.function} computes each operation {times:.2g} times on average: {why}. "
        f"{percent_text(1 - 1 / times)} of its work is repeated.",
        f"Divide the batch or the weights {where}, or use fewer devices.",
        computed_times=times,
        flops=program.flops or 0,
    )

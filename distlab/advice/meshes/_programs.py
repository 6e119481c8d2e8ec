"""Programs on meshes: what they keep from call to call, and along which axes it is divided."""

from __future__ import annotations

import math
from collections.abc import Iterator

from distlab.advice._texts import new_advice
from distlab.events import Advice, ArrayPlace, Collective, Compile


def kept(program: Compile) -> list[ArrayPlace]:
    """Returns the inputs that come back as outputs: parameters and moments, not batches.

    Those that the program drops, or that are on no mesh, are none of them.
    """
    made = {(one.dtype, *one.shape) for one in program.outputs}
    return [
        one
        for one in program.inputs
        if one.shape and one.spec is not None and (one.dtype, *one.shape) in made
    ]


def axes_of(array: ArrayPlace) -> set[str]:
    """Returns the axes that divide an array."""
    return {axis for axes in array.spec or () for axis in axes}


def divides_states(program: Compile, axis: str) -> bool:
    """Returns whether an axis divides a quarter of what a program keeps, in bytes of the whole.

    Parameters without their two moments are a third of it.
    """
    arrays = kept(program)
    divided = sum(_whole(program, one) for one in arrays if axis in axes_of(one))
    return divided * 4 >= sum(_whole(program, one) for one in arrays) > 0


def _whole(program: Compile, array: ArrayPlace) -> int:
    return array.bytes_per_device * math.prod(program.mesh.get(axis, 1) for axis in axes_of(array))


def gathered(program: Compile) -> Iterator[Collective]:
    """Yields the gathers that XLA inserted."""
    for one in program.collectives:
        if one.kind == "all-gather" and one.asked == "xla":
            yield one


def advice_on(program: Compile, cause: str, text: str, remedy: str, line: str = "",
              **evidence: float) -> Advice:  # fmt: skip
    """Makes an advice on a program."""
    return new_advice(
        cause,
        program.function,
        text,
        remedy,
        evidence=evidence,
        page="reductions",
        share=0.0,
        time_ns=program.time_ns,
        source=line or program.source,
    )

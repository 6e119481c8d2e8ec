"""The contents of a compiled program: collectives by mesh axis, costs, memory, inputs and outputs.

`read_program` reads any `jax.stages.Compiled` once, in some milliseconds, and needs no devices. Its
result has the fields of the `Compile` event of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from distlab.events import ArrayPlace, Collective
from distlab.programs.collectives import Reader
from distlab.programs.hlo_text import Module, parse
from distlab.programs.places import Places


class ProgramContents(NamedTuple):
    """The collectives of a compiled program, and its costs on one device.

    Numbers are None when XLA does not report them.
    """

    collectives: list[Collective]
    flops: float | None
    bytes_accessed: float | None  # Bytes that one execution reads and writes
    temp_bytes: int | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    peak_bytes: int | None = None  # The most memory held at any time
    mesh: dict[str, int] = {}  # noqa: RUF012 - names of the mesh's axes to their sizes
    inputs: list[ArrayPlace] = []  # noqa: RUF012
    outputs: list[ArrayPlace] = []  # noqa: RUF012


def read_program(compiled: Any) -> ProgramContents:
    """Reads the contents of a compiled program."""
    cost = _read(compiled, "cost_analysis") or {}
    if isinstance(cost, list | tuple):
        cost = cost[0] if cost else {}
    memory = _read(compiled, "memory_analysis")
    text = _read(compiled, "as_text")
    module = parse(text) if text else Module()
    arrays = ("args_info", "input_shardings", "out_info", "output_shardings")
    places = Places(module, *(_read(compiled, name) for name in arrays))
    return ProgramContents(
        collectives=Reader(module, places).collectives(),
        flops=_known(cost.get("flops")),
        bytes_accessed=_known(cost.get("bytes accessed")),
        temp_bytes=getattr(memory, "temp_size_in_bytes", None),
        argument_bytes=getattr(memory, "argument_size_in_bytes", None),
        output_bytes=getattr(memory, "output_size_in_bytes", None),
        peak_bytes=getattr(memory, "peak_memory_in_bytes", None),
        mesh=max(places.meshes, key=lambda mesh: math.prod(mesh.values()), default={}),
        inputs=places.inputs,
        outputs=places.outputs,
    )


def read_programs(programs: Sequence[Any]) -> ProgramContents:
    """Reads the collectives of programs that make up one step, each executed once."""
    read = [read_program(program) for program in programs]
    collectives = [one for contents in read for one in contents.collectives]
    mesh: dict[str, int] = next((one.mesh for one in read if one.mesh), {})
    return ProgramContents(collectives, None, None, mesh=mesh)


def collectives_of(text: str) -> list[Collective]:
    """Returns the collectives in an optimised program's text, whose mesh is unknown."""
    return Reader(parse(text)).collectives()


def _read(compiled: Any, attribute: str) -> Any:
    """Returns an attribute, or its result; backends without it raise errors of many types."""
    try:
        value = getattr(compiled, attribute)
        return value() if callable(value) else value
    except Exception:  # noqa: BLE001
        return None


def _known(number: Any) -> float | None:
    """Returns a cost; XLA reports -1 for one that it does not know."""
    return None if number is None or number < 0 else float(number)

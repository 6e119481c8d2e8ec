"""The contents of a compiled program: collectives by mesh axis, costs, memory, inputs and outputs.

`read_program` reads any `jax.stages.Compiled` once, in some milliseconds, and needs no devices. Its
result has the fields of the `Compile` event of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from distlab.events import ArrayPlace, Collective
from distlab.events.sink import NO_NOTES, Argument, ProgramNotes
from distlab.programs.collectives import Reader
from distlab.programs.hlo_text import Module, parse
from distlab.programs.places import Places
from distlab.programs.work import whole_flops
from distlab.step.arguments.names import argument_label, is_array, parameter_names


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
    devices: int = 0
    computed_times: float | None = None  # How often each operation is computed, on average


def unwrapped(stage: Any) -> Any:
    """Returns JAX's own stage of a lowered or compiled program that Flax or Equinox wraps."""
    return getattr(stage, "compiled", getattr(stage, "lowered", stage))


def read_program(compiled: Any, notes: ProgramNotes = NO_NOTES) -> ProgramContents:
    """Reads the contents of a compiled program.

    Args:
      compiled: A `jax.stages.Compiled`, also as Flax or Equinox wrap it.
      notes: What it does not say of itself: names of its arrays, and its trace.
    """
    compiled = unwrapped(compiled)
    cost = _read(compiled, "cost_analysis") or {}
    if isinstance(cost, list | tuple):
        cost = cost[0] if cost else {}
    memory = _read(compiled, "memory_analysis")
    text = _read(compiled, "as_text")
    module = parse(text) if text else Module()
    trees = (
        _read(compiled, "args_info"),
        _read(compiled, "input_shardings"),
        _read(compiled, "out_info"),
        _read(compiled, "output_shardings"),
    )
    places = Places(module, trees, notes)
    flops, devices = _known(cost.get("flops")), module.devices
    whole = None if notes.lowered is None else whole_flops(unwrapped(notes.lowered), notes.jaxpr)
    return ProgramContents(
        collectives=Reader(module, places).collectives(),
        flops=flops,
        bytes_accessed=_known(cost.get("bytes accessed")),
        temp_bytes=getattr(memory, "temp_size_in_bytes", None),
        argument_bytes=getattr(memory, "argument_size_in_bytes", None),
        output_bytes=getattr(memory, "output_size_in_bytes", None),
        peak_bytes=getattr(memory, "peak_memory_in_bytes", None),
        mesh=max(places.meshes, key=lambda mesh: math.prod(mesh.values()), default={}),
        inputs=places.inputs,
        outputs=places.outputs,
        devices=devices,
        computed_times=flops * devices / whole if flops and whole else None,
    )


def arguments_of(fn: Callable[..., Any], args: Any, kwargs: Any) -> list[Argument]:
    """Returns the arrays among the arguments of a call, with their names."""
    names = parameter_names(fn, len(args))
    leaves, _ = jax.tree_util.tree_flatten_with_path((args, kwargs))
    return [
        Argument(argument_label(path, names), path, tuple(leaf.shape))
        for path, leaf in leaves
        if is_array(leaf)
    ]


def read_programs(programs: Sequence[Any]) -> ProgramContents:
    """Reads the collectives of programs that make up one step, each executed once."""
    read = [read_program(program) for program in programs]
    collectives = [one for contents in read for one in contents.collectives]
    mesh: dict[str, int] = next((one.mesh for one in read if one.mesh), {})
    return ProgramContents(collectives, None, None, mesh=mesh)


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

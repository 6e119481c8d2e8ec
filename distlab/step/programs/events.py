"""The event of a compiled program: the cause, and the values that its collectives combine."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from distlab import events
from distlab.events import sink
from distlab.step.jaxprs import operations
from distlab.step.programs.program import Program
from distlab.text.shown import shown
from distlab.user_code import calling_line


def emit(
    program: Program,
    programs: dict[Any, Program],
    strategy: int,
    doubts: list[events.Doubt],
    *,
    referred: str,
    recorder: sink.Recorder,
) -> None:
    """Emits the event of a compiled program."""
    called = calling_line()
    # It may be among them already, by the key of plain arrays instead of declared values.
    cause, changed = _cause(program, [one for one in programs.values() if one is not program])

    def compiled_event(**contents: Any) -> events.Compile:
        names = _names_by_shape(program)
        contents["collectives"] = [_annotated(one, names) for one in contents["collectives"]]
        return events.Compile(
            time_ns=time.monotonic_ns(),
            program=program.number,
            strategy=strategy,
            function=program.function,
            cause=cause,
            changed=changed or referred,
            arguments=[str(leaf) for leaf in program.arguments.leaves],
            mode="ragged" if program.spmd.ragged else "traced",
            trace_ns=program.trace_ns,
            compile_ns=program.compile_ns,
            source=program.source,
            assigned=[variable.name for variable in program.spmd.written],
            doubts=doubts,
            called=called,
            trains=any(operations.has_gradient(trace.jaxpr.jaxpr) for trace in program.spmd.traces),
            **contents,
        )

    recorder.compiled(compiled_event, program.executable, program.notes)


def _names_by_shape(program: Program) -> dict[str, str]:
    """Returns the names of variables and arguments by their shape in XLA's notation.

    A gradient has that of its variable. A shape that several share has the names of two. A divided
    variable has that of its parts, too.
    """
    named = [(v.name, v.dtype, v.shape) for v in program.spmd.read]
    divided = [v for v in program.spmd.read if v.storage.layout.spec]
    named += [(v.name, v.dtype, v.storage.layout.part_shape(v.shape)) for v in divided]
    named += [
        (leaf.label, leaf.dtype, leaf.shapes[0])
        for leaf in program.arguments.leaves
        if leaf.role != "static"
    ]
    names: dict[str, list[str]] = defaultdict(list)
    for name, dtype, shape in named:
        text = _hlo_shape(dtype, shape)
        if "[]" not in text:
            names[text].append(name)
    return {text: _one_of(sharing) for text, sharing in names.items()}


def _one_of(names: list[str]) -> str:
    several = " or ".join(names[:2])
    return f"{several} or {len(names) - 2} more" if len(names) > 2 else several


def _hlo_shape(dtype: Any, shape: Any) -> str:
    kinds = {"f": "f", "i": "s", "u": "u", "c": "c", "V": "bf"}
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return f"{dtype}{list(shape)}"  # XLA sees a random key as an array of another shape
    dtype = np.dtype(dtype)
    kind = "pred" if dtype.kind == "b" else f"{kinds.get(dtype.kind, '?')}{dtype.itemsize * 8}"
    return f"{kind}[{','.join(map(str, shape))}]"


def _annotated(collective: events.Collective, names: dict[str, str]) -> events.Collective:
    """Adds to each operand the name that has its shape: a gradient's is that of its variable."""
    values = []
    for value in collective.values:
        shape, _, rest = value.partition(" ")
        name = names.get(shape)
        values.append(f"{shape} like {name} {rest}".rstrip() if name else value)
    return msgspec.structs.replace(collective, values=values)


def _cause(program: Program, before: list[Program]) -> tuple[str, str]:
    """Returns why a program was compiled, and the arguments that changed."""
    if not before:
        return "new function", ""
    new = {leaf.label: leaf for leaf in program.arguments.leaves}
    old = {leaf.label: leaf for leaf in before[-1].arguments.leaves}
    if new.keys() != old.keys():
        unmatched = sorted(new.keys() ^ old.keys())
        return "new structure", f"{', '.join(unmatched[:3])} added or removed"
    changed = [
        f"{old[label]} -> {str(leaf).split(': ', 1)[1]}"
        for label, leaf in new.items()
        if str(leaf) != str(old[label])
    ]
    if not changed:
        changed = [
            f"{label}: {shown(old[label].value, 40)} -> {shown(leaf.value, 40)}"
            for label, leaf in new.items()
            if leaf.role == "static" and old[label].value is not leaf.value
        ]
        if changed:
            return "new structure", "; ".join(changed[:3])
    if not changed and program.configuration != before[-1].configuration:
        return "new structure", "JAX's configuration, such as jax.enable_x64"
    if not changed:
        return "new structure", "the same shapes in another structure"
    return "new shapes", "; ".join(changed[:3])

"""Saying that a program was compiled: why, and whose values its collectives combine."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from distlab import events
from distlab.events import sink
from distlab.step.program import Program


def announce(
    program: Program, programs: dict[Any, Program], strategy: int, recorder: sink.Recorder
) -> None:
    """Emits that a program was compiled, why, and what is inside.

    Args:
      program: what was compiled.
      programs: the function's other programs, oldest first.
      strategy: number of the strategy.
      recorder: takes the event.
    """
    cause, changed = _cause(program, list(programs.values()))

    def compiled_event(**contents: Any) -> events.Compile:
        known = _known_shapes(program)
        contents["collectives"] = [_named(one, known) for one in contents["collectives"]]
        return events.Compile(
            time_ns=time.monotonic_ns(),
            program=program.number,
            strategy=strategy,
            function=program.function,
            cause=cause,
            changed=changed,
            arguments=[str(leaf) for leaf in program.arguments.leaves],
            mode="ragged" if program.spread.ragged else "traced",
            trace_ns=program.trace_ns,
            compile_ns=program.compile_ns,
            source=program.source,
            **contents,
        )

    recorder.compiled(compiled_event, program.compiled)


def _known_shapes(program: Program) -> dict[str, str]:
    """Returns names of the variables and arguments by their shape, as XLA writes it.

    Shapes that two of them have are left out: they don't tell who is meant.
    """
    named = [(v.name, v.dtype, v.shape) for v in program.spread.read]
    named += [
        (leaf.label, leaf.dtype, leaf.shapes[0])
        for leaf in program.arguments.leaves
        if leaf.role != "static"
    ]
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name, dtype, shape in named:
        text = _hlo_shape(dtype, shape)
        twice |= {text} & found.keys()
        found[text] = name
    return {text: name for text, name in found.items() if text not in twice and "[]" not in text}


def _hlo_shape(dtype: Any, shape: Any) -> str:
    kinds = {"f": "f", "i": "s", "u": "u", "c": "c", "V": "bf"}
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return f"{dtype}{list(shape)}"  # random keys, which are numbers of another shape to XLA
    dtype = np.dtype(dtype)
    kind = "pred" if dtype.kind == "b" else f"{kinds.get(dtype.kind, '?')}{dtype.itemsize * 8}"
    return f"{kind}[{','.join(map(str, shape))}]"


def _named(collective: events.Collective, known: dict[str, str]) -> events.Collective:
    """Says whose shape each operand has: a gradient has that of its variable."""
    values = []
    for value in collective.values:
        shape, _, rest = value.partition(" ")
        name = known.get(shape)
        values.append(f"{shape} like {name} {rest}".rstrip() if name else value)
    return msgspec.structs.replace(collective, values=values)


def _cause(program: Program, before: list[Program]) -> tuple[str, str]:
    """Says why a program had to be made, and which argument was the reason."""
    if not before:
        return "new function", ""
    new = {leaf.label: leaf for leaf in program.arguments.leaves}
    old = {leaf.label: leaf for leaf in before[-1].arguments.leaves}
    if new.keys() != old.keys():
        odd = sorted(new.keys() ^ old.keys())
        return "new structure", f"{', '.join(odd[:3])} came or went"
    changed = [
        f"{old[label]} -> {str(leaf).split(': ', 1)[1]}"
        for label, leaf in new.items()
        if str(leaf) != str(old[label])
    ]
    if not changed:
        changed = [
            f"{label}: {old[label].value!r:.40} -> {leaf.value!r:.40}"
            for label, leaf in new.items()
            if leaf.role == "static" and old[label].value is not leaf.value
        ]
        if changed:
            return "new structure", "; ".join(changed[:3])
    if not changed:
        return "new structure", "the same shapes, given in another way"
    return "new shapes", "; ".join(changed[:3])

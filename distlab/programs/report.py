"""`program`: what a compiled program moves, holds and repeats, read without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html import escape
from typing import Any, Final, NamedTuple

import jax

from distlab.advice import advise_on_program
from distlab.errors import ArgumentTypeError
from distlab.events import Advice, ArrayPlace, Collective, Compile
from distlab.events.sink import ProgramNotes
from distlab.meshes import blocks
from distlab.programs.contents import ProgramContents, arguments_of, read_program
from distlab.text.bytes import bytes_text
from distlab.text.html import card
from distlab.text.shown import shown
from distlab.text.units import aligned, count_text, counted, flops_text, line_in

_MOST_ROWS: Final = 16
_MOST_NAMES: Final = 3
_SHORT: Final = 12
"""Letters of a cell that a notebook does not break."""
_HEADINGS: Final = ("collective", "times", "operand", "sent", "axes", "asked by", "for", "line")


class Divisible(NamedTuple):
    """An input that lies whole along a mesh axis over which it could be divided.

    Attributes:
      name: Its name in the program, such as `params['w']`.
      axis: The mesh axis.
      bytes_per_device: Bytes that each device holds of it.
      saved_bytes: Bytes that each device would save.
    """

    name: str
    axis: str
    bytes_per_device: int
    saved_bytes: int


class ProgramMemory(NamedTuple):
    """Memory of one device in bytes, None where XLA does not report it.

    Attributes:
      argument_bytes: Memory of the arguments.
      output_bytes: Memory of the outputs; donated arguments lie in it, too.
      temp_bytes: Scratch memory. That of CPU devices is not comparable to other hardware's.
      peak_bytes: The most memory at any time.
    """

    argument_bytes: int | None
    output_bytes: int | None
    temp_bytes: int | None
    peak_bytes: int | None


class ProgramReport:
    """A compiled program, as `program` returns it; printed or displayed, a table of collectives.

    Attributes:
      name: Name of the function.
      mesh: Names of the mesh's axes to their sizes; empty without a mesh.
      devices: Number of devices.
      collectives: Its collectives, in order; `distlab.events.Collective` has their fields.
      inputs: The arrays that it receives.
      outputs: The arrays that it returns.
      memory: Memory of one device.
      flops: Floating-point operations of one device; None where XLA does not report them.
      computed_times: How often each operation is computed, on average: 1 where the devices divide
        all work, their number where each does all of it. None where XLA does not report it.
    """

    def __init__(self, name: str, contents: ProgramContents) -> None:
        self._contents = contents
        self.name = name
        self.mesh = contents.mesh
        self.devices = contents.devices
        self.collectives: list[Collective] = contents.collectives
        self.inputs: list[ArrayPlace] = contents.inputs
        self.outputs: list[ArrayPlace] = contents.outputs
        self.memory = ProgramMemory(
            contents.argument_bytes,
            contents.output_bytes,
            contents.temp_bytes,
            contents.peak_bytes,
        )
        self.flops = contents.flops
        self.computed_times = contents.computed_times

    def by_axis(self) -> dict[str, int]:
        """Returns the bytes that each device sends in one run, by mesh axis.

        Returns:
          Axes to bytes, such as `{"data": 419430}`; several axes are joined by `+`, and `""` stands
          for collectives without a mesh. One in a branch or a loop of unknown length counts once.
        """
        sent = Counter[str]()
        for one in self.collectives:
            sent["+".join(one.axes)] += sent_bytes(one)
        return dict(sent)

    def could_be_divided(self, least_bytes: int = 1 << 20) -> list[Divisible]:
        """Returns inputs that lie whole along an axis, though it divides one of their dimensions.

        Args:
          least_bytes: The fewest bytes a device of an array.

        Returns:
          The inputs and axes, the most bytes saved first.
        """
        found = []
        for one in self.inputs:
            if one.spec is None or one.bytes_per_device < least_bytes:
                continue
            held = one.bytes_per_device
            found += [
                Divisible(one.name, axis, held, held - held // self.mesh[axis])
                for axis in blocks.divisible_along(one.shape, one.spec, self.mesh)
            ]
        return sorted(found, key=lambda one: -one.saved_bytes)

    def advice(self) -> list[Advice]:
        """Returns what the program repeats, gathers or holds more often than it needs to.

        Returns:
          The findings; docs/advice.md explains the causes.
        """
        return advise_on_program(
            Compile(
                time_ns=0,
                program=-1,
                strategy=-1,
                function=self.name,
                cause="new function",
                changed="",
                arguments=[],
                mode="traced",
                trace_ns=0,
                compile_ns=0,
                **self._contents._asdict(),
            )
        )

    def __repr__(self) -> str:
        """Returns the facts and the table of collectives as text."""
        lines = [f"{self.name}: {self._facts()}", *self._memory()]
        rows = self._table()
        if rows:
            lines += ["", *aligned([_HEADINGS, *rows[:_MOST_ROWS]])]
        if len(rows) > _MOST_ROWS:
            lines.append(f"and {len(rows) - _MOST_ROWS} more kinds of collectives")
        lines += [f"\n{one.text} {one.remedy}" for one in self.advice()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns the facts and the table of collectives as HTML without scripts."""
        notes = [*self._memory(), *(f"{one.text} {one.remedy}" for one in self.advice())]
        text = "".join(f"<div>{escape(note)}</div>" for note in notes)
        rows = [
            [cell.replace(" ", "\u00a0") if len(cell) < _SHORT else cell for cell in row]
            for row in self._table()
        ]
        return card(self.name, self._facts(), _HEADINGS, rows, picture=text)

    def _facts(self) -> str:
        facts = [counted(self.devices, "device")]
        if self.mesh:
            facts[0] += f" ({blocks.axes_text(self.mesh)})"
        if self.flops is not None:
            facts.append(f"{flops_text(self.flops)} a device")
        if self.computed_times is not None and self.devices > 1:
            facts.append(f"each operation computed {self.computed_times:.1f} times")
        sent = [f"{bytes_text(size)} along {axes}" for axes, size in self.by_axis().items() if axes]
        return ", ".join(facts) + (f"; each device sends {', '.join(sent)}" if sent else "")

    def _memory(self) -> list[str]:
        named = ("arguments", "outputs", "scratch", "peak")
        parts = [
            f"{name} {bytes_text(size)}"
            for name, size in zip(named, self.memory, strict=True)
            if size is not None
        ]
        return [f"memory of a device: {', '.join(parts)}"] if parts else []

    def _prefix(self, number: int) -> str:
        """Returns what stands before the bytes that a collective sends."""
        del self, number
        return ""

    def _table(self) -> list[list[str]]:
        """Returns the rows of the collectives, equal ones as one, the largest first."""
        often = Counter[tuple[str, ...]]()
        sent = Counter[tuple[str, ...]]()
        unknown = set()
        for number, one in enumerate(self.collectives):
            row = _row(one, self._prefix(number))
            often[row] += one.times_per_step or 1
            sent[row] += sent_bytes(one)
            if one.times_per_step is None:
                unknown.add(row)
        return [
            [row[0], f"{count_text(often[row])}{'+' * (row in unknown)}", *row[1:]]
            for row in sorted(often, key=lambda row: -sent[row])
        ]


def sent_bytes(one: Collective) -> int:
    """Returns the bytes that a device sends in one run, once where the times are unknown."""
    return (one.wire_bytes or 0) * (1 if one.times_per_step is None else one.times_per_step)


def _row(one: Collective, prefix: str) -> tuple[str, ...]:
    axes = "+".join(one.axes)
    shift = "" if one.shift is None else f" {one.shift:+d}"
    return (
        one.kind,
        bytes_text(one.operand_bytes),
        f"{prefix}{bytes_text(one.wire_bytes or 0)}",
        f"{axes}{shift}" if axes else f"{one.group} devices",
        "XLA" if one.asked == "xla" else "the program",
        _purpose(one),
        line_in(one.source),
    )


def _purpose(one: Collective) -> str:
    names = ", ".join(one.names[:_MOST_NAMES])
    more = len(one.names) - _MOST_NAMES
    names += f" and {more} more" if more > 0 else ""
    text = f"{one.purpose} of {names}" if names else one.purpose
    text = text.replace("whole of", "whole")
    return text + (f"; {bytes_text(one.then_sliced)} then sliced" if one.then_sliced else "")


def program(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ProgramReport:
    """Compiles a function for arguments and reads its program; nothing runs.

    It shows what each collective moves along which mesh axis, whether the program or XLA asked for
    it, and for what: gradients of which parameters, the whole of which parameter, activations.

    Args:
      fn: A function of `jax.jit`, `nnx.jit`, `eqx.filter_jit` or `jax.pmap`, one that
        `distlab.observe` returned, a `jax.stages.Compiled`, or a plain function, which is jitted.
      *args: Its arguments; a `jax.ShapeDtypeStruct` with a sharding serves as an array.
      **kwargs: Its keyword arguments.

    Returns:
      The program: printed or displayed, a table of its collectives.

    Raises:
      ArgumentTypeError: `fn` is not callable.

    Example:
      >>> import jax, jax.numpy as jnp, distlab as dl
      >>> from jax.sharding import NamedSharding, PartitionSpec as P
      >>> mesh = jax.make_mesh((8,), ("data",))
      >>> def shape(*sizes, spec=P()):
      ...     return jax.ShapeDtypeStruct(sizes, "float32", sharding=NamedSharding(mesh, spec))
      >>> def step(w, x):
      ...     return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
      >>> found = dl.program(jax.jit(step), shape(16, 4), shape(64, 16, spec=P("data")))
      >>> found.by_axis()
      {'data': 448}
      >>> [(one.kind, one.axes, one.purpose, one.names) for one in found.collectives]
      [('all-reduce', ['data'], 'gradients', ['w'])]
    """
    if isinstance(fn, jax.stages.Compiled):
        return ProgramReport("program", read_program(fn))
    if not callable(fn):
        raise ArgumentTypeError(f"program() needs a function, got {shown(fn)}. Pass a jitted one.")
    name, lowered, notes = lowered_for(fn, args, kwargs)
    return ProgramReport(name, read_program(lowered.compile(), notes))


def lowered_for(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str, Any, ProgramNotes]:
    """Returns a function's name, its lowered program for arguments, and notes for its reader."""
    jitted: Any = fn if hasattr(fn, "lower") else jax.jit(fn)
    traced: Any = jitted.trace(*args, **kwargs) if hasattr(jitted, "trace") else None
    jaxpr = getattr(getattr(traced, "jaxpr", None), "jaxpr", None)
    lowered = jitted.lower(*args, **kwargs) if jaxpr is None else traced.lower()
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return name, lowered, ProgramNotes(arguments_of(fn, args, kwargs), lowered=lowered, jaxpr=jaxpr)

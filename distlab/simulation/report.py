"""`simulate`'s result: what a program holds and moves on each mesh, as data, text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, final

from distlab.events import ArrayPlace, Collective
from distlab.meshes.blocks import axes_text
from distlab.programs.contents import ProgramContents
from distlab.programs.report import ProgramReport, sent_bytes
from distlab.simulation.counts import BFLOAT16, Count
from distlab.text.bytes import bytes_text
from distlab.text.html import card
from distlab.text.units import aligned, count_text, duration_text

_MARK: Final = "\u2248"
"""Before numbers that may be others on GPUs and TPUs."""
_ABOUT: Final = "bytes of one device in one run"


@final
class SimulatedMesh(ProgramReport):
    """A program on one mesh: a `ProgramReport` that says where its numbers come from.

    Its `memory` has the arguments and outputs, and scratch memory where TPUs were compiled for.

    Attributes:
      topology: The TPU topology for which it was compiled; "" for simulated CPU devices.
      marks: What GPUs and TPUs do otherwise, for each of the collectives; mostly nothing.
      does_not_divide: The arrays that the mesh does not divide; then nothing was compiled.
      extrapolated_from: The meshes for which it was compiled instead, the last as a check; empty if
        it was compiled for this one.
      modelled_s: Seconds of all collectives, one after the other, of the speeds that were given;
        None without them, or without that of an axis.
    """

    def __init__(self, name: str, count: Count, speeds: Mapping[str, float]) -> None:
        devices = math.prod(count.axes.values())
        found = ProgramContents([], None, None, mesh=count.axes, devices=devices)
        if count.contents is not None:
            # XLA's own sum of the outputs counts the pointers to them, too.
            found = count.contents._replace(
                argument_bytes=_held(count.contents.inputs),
                output_bytes=_held(count.contents.outputs),
            )
        if not count.topology:  # scratch memory of CPU devices says nothing of others
            found = found._replace(temp_bytes=None, peak_bytes=None)
        super().__init__(name, found)
        self.topology = count.topology
        self.marks = list(count.marks)
        self.does_not_divide = count.undivided
        self.extrapolated_from = list(count.extrapolated_from)
        times = [_modelled(one, speeds) for one in self.collectives]
        known = [time for time in times if time is not None]
        self.modelled_s = sum(known) if known and len(known) == len(times) else None

    def sent(self) -> dict[str, dict[str, int]]:
        """Returns the bytes that each device sends in one run, by mesh axis and collective.

        Returns:
          Axes, several joined by `+`, to kinds, to bytes: `{"data": {"all-reduce": 978551}}`. One
          in a branch or a loop of unknown length counts once.
        """
        found: dict[str, dict[str, int]] = {}
        for one in self.collectives:
            kinds = found.setdefault("+".join(one.axes), {})
            kinds[one.kind] = kinds.get(one.kind, 0) + sent_bytes(one)
        return found

    def could_save(self) -> int:
        """Returns the bytes that a device saves if each input lying whole is divided once more."""
        best: dict[str, int] = {}
        for one in self.could_be_divided(1):
            best[one.name] = max(best.get(one.name, 0), one.saved_bytes)
        return sum(best.values())

    def exact(self, number: int) -> bool:
        """Returns whether the bytes of a collective are those of any hardware."""
        return not set(self.marks[number]) - {BFLOAT16}

    @property
    def title(self) -> str:
        """The mesh as text, such as `"data 16 × model 4 of v5e:8x8"`."""
        return axes_text(self.mesh) + (f" of {self.topology}" if self.topology else "")

    def notes(self) -> list[str]:
        """Returns what the mesh does not divide, and where its numbers come from."""
        if self.does_not_divide:
            return [f"does not divide {self.does_not_divide}"]
        if not self.extrapolated_from:
            return []
        *used, check = map(axes_text, self.extrapolated_from)
        return [f"extrapolated from {', '.join(used)}; {check} was predicted exactly"]

    def mark_texts(self) -> list[str]:
        """Returns the marks as notes."""
        marks = dict.fromkeys(mark for own in self.marks for mark in own)
        return [mark if mark == BFLOAT16 else f"{_MARK} {mark}" for mark in marks]

    def cells(self, axes: Sequence[str]) -> list[str]:
        """Returns memory, bytes by kind along each of the axes, and repeated work as text."""
        if self.does_not_divide:
            return ["\u2013"] * (len(axes) + 4)
        sizes = (self.memory.argument_bytes or 0, self.memory.output_bytes or 0, self.could_save())
        times = self.computed_times
        repeated = "\u2013" if times is None else f"{times:.1f} times"
        return [
            *map(bytes_text, sizes),
            *(", ".join(self._kinds(one)) or "\u2013" for one in axes),
            "once" if repeated == "1.0 times" else repeated,
        ]

    def _kinds(self, axes: str) -> list[str]:
        """Returns the bytes sent along axes by kind, such as `"all-reduce 420 kB"`."""
        rough = {
            one.kind
            for number, one in enumerate(self.collectives)
            if "+".join(one.axes) == axes and not self.exact(number)
        }
        return [
            f"{kind} {f'{_MARK} ' if kind in rough else ''}{bytes_text(size)}"
            for kind, size in self.sent().get(axes, {}).items()
        ]

    def _memory(self) -> list[str]:
        return [*super()._memory(), *self.notes(), *self.mark_texts()]

    def _prefix(self, number: int) -> str:
        return "" if self.exact(number) else f"{_MARK} "


@final
class Simulation(list[SimulatedMesh]):
    """A program on several meshes, as `simulate` returns it: a list of `SimulatedMesh`.

    Printed or displayed, a table with a row for each mesh, in the order in which they were named.

    Attributes:
      name: Name of the function.
    """

    def __init__(self, name: str, meshes: Iterable[SimulatedMesh]) -> None:
        super().__init__(meshes)
        self.name = name

    def __repr__(self) -> str:
        """Returns a table with a row for each mesh, and what to know of its numbers, as text."""
        headings, rows = self.table()
        return "\n".join([f"{self.name}, {_ABOUT}", *aligned([headings, *rows]), *self.notes()])

    def _repr_html_(self) -> str:
        """Returns the table, and the collectives on each mesh, as HTML without scripts."""
        headings, rows = self.table()
        notes = "".join(f'<div style="margin:4px 0 0">{escape(one)}</div>' for one in self.notes())
        inside = "".join(
            f"<details><summary>{escape(one.title)}</summary>{one._repr_html_()}</details>"
            for one in self
            if one.collectives
        )
        below = f'{notes}<div style="margin:6px 0 0">{inside}</div>'
        return card(self.name, _ABOUT, headings, map(_unbroken, rows), below=below)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the headings, and the texts of a row for each mesh."""
        axes = list(dict.fromkeys(axes for one in self for axes in one.sent()))
        modelled = any(one.modelled_s is not None for one in self)
        along = [f"sent along {name}" if name else "sent without a mesh" for name in axes]
        headings = ["mesh", "devices", "arguments", "outputs", "could save", *along, "computed"]
        return [*headings, *["modelled"] * modelled], [
            [
                one.title,
                count_text(one.devices),
                *one.cells(axes),
                *["\u2013" if one.modelled_s is None else duration_text(one.modelled_s)] * modelled,
            ]
            for one in self
        ]

    def notes(self) -> list[str]:
        """Returns what to know of the numbers."""
        marks = dict.fromkeys(text for one in self for text in one.mark_texts())
        own = (f"{axes_text(one.mesh)}: {note}" for one in self for note in one.notes())
        return [*marks, *own]


def _unbroken(row: Sequence[str]) -> list[str]:
    """Returns cells that a browser breaks after commas alone."""
    return [re.sub("(?<!,) ", "\u00a0", cell).replace("-", "\u2011") for cell in row]


def _modelled(one: Collective, speeds: Mapping[str, float]) -> float | None:
    """Returns a collective's seconds over the slowest of its links."""
    if not one.axes or not speeds.keys() >= {*one.axes} or one.times_per_step is None:
        return None
    return sent_bytes(one) / min(speeds[axis] for axis in one.axes)


def _held(arrays: Sequence[ArrayPlace]) -> int:
    return sum(one.bytes_per_device for one in arrays if one.used)

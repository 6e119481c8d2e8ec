"""`simulate`'s result: what a program holds and moves on each mesh, as data, text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple, final

from distlab.events import ArrayPlace, Collective
from distlab.meshes.blocks import axes_text
from distlab.programs.report import Divisible, divisible, purpose_text, sent_bytes
from distlab.simulation.counts import BFLOAT16, Count
from distlab.text.bytes import bytes_text
from distlab.text.html import card, table
from distlab.text.units import aligned, count_text, counted, duration_text, line_in

_MIB: Final = 1 << 20
_MOST_ROWS: Final = 16
_MOST_WHOLE: Final = 3
_NONE: Final = "\u2013"
_MARK: Final = "\u2248"
"""Before numbers that may be others on GPUs and TPUs."""
_ABOUT: Final = "bytes of one device in one run"
_COLLECTIVES: Final = ("collective", "times", "sent each", "axes", "asked by", "for", "line")


class SimulatedCollective(NamedTuple):
    """A collective of a simulated program.

    Attributes:
      collective: What it moves, along which axes, for what: a `distlab.events.Collective`.
      sent_bytes: Bytes that a device sends in one run of the program.
      marks: What GPUs and TPUs do otherwise.
      modelled_s: Seconds in one run, of the speeds that were given; None without them.
    """

    collective: Collective
    sent_bytes: int
    marks: tuple[str, ...]
    modelled_s: float | None

    @property
    def exact(self) -> bool:
        """Whether the bytes are those of any hardware."""
        return not set(self.marks) - {BFLOAT16}


@final
class SimulatedMesh:
    """A program on one mesh.

    Attributes:
      mesh: Names of the axes to their sizes.
      devices: Number of devices.
      topology: The TPU topology for which it was compiled; "" for simulated CPU devices.
      argument_bytes: Memory of the arguments on one device; None if `does_not_divide`.
      output_bytes: Memory of the outputs on one device; donated arguments lie in it, too.
      temp_bytes: Scratch memory of one TPU; None otherwise: that of CPU devices says nothing.
      inputs: The arrays that the program receives.
      collectives: Its collectives.
      computed_times: How often each operation is computed, on average: 1 where the devices divide
        all work, their number where each does all of it. None where XLA does not report it.
      does_not_divide: JAX's message of an array that the mesh does not divide; "" if there is none.
      extrapolated_from: The meshes for which the program was compiled instead, the last to check;
        empty if it was compiled for this one.
    """

    def __init__(
        self,
        count: Count,
        topology: str,
        speeds: dict[str, tuple[float, float]],
        extrapolated_from: Sequence[dict[str, int]] = (),
    ) -> None:
        contents = count.contents
        self.mesh = count.axes
        self.devices = math.prod(count.axes.values())
        self.topology = topology
        # XLA's own sum of the outputs counts the pointers to them, too.
        self.argument_bytes = _held(contents.inputs) if contents else None
        self.output_bytes = _held(contents.outputs) if contents else None
        self.temp_bytes = contents.temp_bytes if contents and topology else None
        self.inputs: list[ArrayPlace] = contents.inputs if contents else []
        self.computed_times = contents.computed_times if contents else None
        self.does_not_divide = count.undivided
        self.extrapolated_from = list(extrapolated_from)
        found = contents.collectives if contents else []
        self.collectives = [
            SimulatedCollective(one, sent_bytes(one), marks, _modelled(one, speeds))
            for one, marks in zip(found, count.marks, strict=True)
        ]

    def sent(self) -> dict[str, dict[str, int]]:
        """Returns the bytes that each device sends in one run, by mesh axis and collective.

        Returns:
          Axes, several joined by `+`, to kinds, to bytes: `{"data": {"all-reduce": 978551}}`. One
          in a branch or a loop of unknown length counts once.
        """
        found: dict[str, dict[str, int]] = {}
        for one in self.collectives:
            kinds = found.setdefault(_axes(one), {})
            kinds[one.collective.kind] = kinds.get(one.collective.kind, 0) + one.sent_bytes
        return found

    def by_axis(self) -> dict[str, int]:
        """Returns the bytes that each device sends in one run, by mesh axis."""
        return {axes: sum(kinds.values()) for axes, kinds in self.sent().items()}

    def could_be_divided(self, least_bytes: int = _MIB) -> list[Divisible]:
        """Returns inputs that lie whole along an axis, though it divides one of their dimensions.

        Args:
          least_bytes: The fewest bytes a device of an array.

        Returns:
          The inputs and axes, the most bytes saved first.
        """
        return divisible(self.inputs, self.mesh, least_bytes)

    @property
    def could_save(self) -> int:
        """Bytes that a device would save if each input that lies whole were divided once more."""
        best: dict[str, int] = {}
        for one in self.could_be_divided(1):
            best[one.name] = max(best.get(one.name, 0), one.saved_bytes)
        return sum(best.values())

    @property
    def marks(self) -> list[str]:
        """How GPUs and TPUs may differ from what was counted."""
        return list(dict.fromkeys(mark for one in self.collectives for mark in one.marks))

    @property
    def modelled_s(self) -> float | None:
        """Seconds of all collectives in one run, one after the other, by the speeds given.

        None without speeds, and where the speed of an axis is unknown.
        """
        times = [one.modelled_s for one in self.collectives]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) and known else None

    def __repr__(self) -> str:
        """Returns its facts and the table of its collectives as text."""
        lines = [_title(self), *_notes(self)]
        rows = _rows(self)
        if rows:
            lines += aligned([_headings(self), *rows[:_MOST_ROWS]])
        if len(rows) > _MOST_ROWS:
            lines.append(f"and {len(rows) - _MOST_ROWS} more")
        return "\n".join([*lines, *map(_mark_text, self.marks)])

    def _repr_html_(self) -> str:
        """Returns its facts and the table of its collectives as HTML without scripts."""
        below = self._inside() + _lines([_mark_text(mark) for mark in self.marks])
        return card(_title(self), "", (), (), below=below)

    def _inside(self) -> str:
        """Returns the notes and the table of collectives as HTML."""
        rows = [_unbroken(row) for row in _rows(self)]
        return table(_headings(self), rows) + _lines(_notes(self))


@final
class Simulation:
    """A program on several meshes, as `simulate` returns it; a sequence of `SimulatedMesh`.

    Printed or displayed, a table with a row for each mesh.

    Attributes:
      name: Name of the function.
      meshes: The program on each mesh, in the order in which they were named.
    """

    def __init__(self, name: str, meshes: Sequence[SimulatedMesh]) -> None:
        self.name = name
        self.meshes = list(meshes)

    def __len__(self) -> int:
        """Returns the number of meshes."""
        return len(self.meshes)

    def __iter__(self) -> Iterator[SimulatedMesh]:
        """Returns an iterator over the meshes."""
        return iter(self.meshes)

    def __getitem__(self, index: int) -> SimulatedMesh:
        """Returns the program on the mesh of that number."""
        return self.meshes[index]

    def __repr__(self) -> str:
        """Returns a table with a row for each mesh, and what to know of its numbers, as text."""
        headings, rows = self.table()
        return "\n".join([f"{self.name}, {_ABOUT}", *aligned([headings, *rows]), *self.notes()])

    def _repr_html_(self) -> str:
        """Returns the table, and the collectives on each mesh, as HTML without scripts."""
        headings, rows = self.table()
        inside = "".join(
            f"<details><summary>{escape(_title(one))}</summary>{one._inside()}</details>"
            for one in self.meshes
            if one.collectives
        )
        below = f'{_lines(self.notes())}<div style="margin:6px 0 0">{inside}</div>'
        return card(self.name, _ABOUT, headings, map(_unbroken, rows), below=below)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the headings, and the texts of a row for each mesh."""
        axes = list(dict.fromkeys(axes for one in self.meshes for axes in one.sent()))
        modelled = any(row.modelled_s is not None for one in self.meshes for row in one.collectives)
        along = [f"sent along {name}" if name else "sent without a mesh" for name in axes]
        headings = ["mesh", "devices", "arguments", "outputs", "could save", *along, "computed"]
        return [*headings, *["modelled"] * modelled], [
            [
                axes_text(one.mesh) + (f" of {one.topology}" if one.topology else ""),
                count_text(one.devices),
                _bytes(one.argument_bytes),
                _bytes(one.output_bytes),
                _bytes(None if one.does_not_divide else one.could_save),
                *(_sent_text(one, name) for name in axes),
                _times(one.computed_times),
                *[_time(one.modelled_s)] * modelled,
            ]
            for one in self.meshes
        ]

    def notes(self) -> list[str]:
        """Returns what to know of the numbers."""
        marks = list(dict.fromkeys(mark for one in self.meshes for mark in one.marks))
        own = [
            f"{axes_text(one.mesh)}: {note}"
            for one in self.meshes
            for note in _notes(one, inside=False)
        ]
        return [*(_mark_text(mark) for mark in marks), *own]


def _modelled(one: Collective, speeds: dict[str, tuple[float, float]]) -> float | None:
    """Returns a collective's time over the slowest of its links: latency of hops, and bytes."""
    used = [speeds[axis] for axis in one.axes if axis in speeds]
    if not one.axes or len(used) < len(one.axes) or one.times_per_step is None:
        return None
    latency, rate = max(alpha for alpha, _ in used), min(rate for _, rate in used)
    rounds = {"all-reduce": 2, "collective-permute": 0}.get(one.kind, 1)
    hops = rounds * (one.group - 1) or 1
    return one.times_per_step * (latency * hops + (one.wire_bytes or 0) / rate)


def _axes(one: SimulatedCollective) -> str:
    return "+".join(one.collective.axes)


def _lines(notes: Sequence[str]) -> str:
    return "".join(f'<div style="margin:4px 0 0">{escape(note)}</div>' for note in notes)


def _unbroken(row: Sequence[str]) -> list[str]:
    """Returns cells that a browser breaks after commas and semicolons alone."""
    return [re.sub("(?<![,;]) ", "\u00a0", cell).replace("-", "\u2011") for cell in row]


def _held(arrays: Sequence[ArrayPlace]) -> int:
    return sum(one.bytes_per_device for one in arrays if one.used)


def _bytes(size: int | None) -> str:
    return _NONE if size is None else bytes_text(size)


def _times(times: float | None) -> str:
    if times is None:
        return _NONE
    return "once" if round(times, 1) == 1 else f"{times:.1f} times"


def _time(seconds: float | None) -> str:
    return _NONE if seconds is None else duration_text(seconds)


def _mark_text(mark: str) -> str:
    return f"{'' if mark == BFLOAT16 else f'{_MARK} '}{mark}"


def _sent_text(one: SimulatedMesh, axes: str) -> str:
    """Returns the bytes sent along axes by kind, such as `"all-reduce 420 kB"`."""
    if one.does_not_divide:
        return _NONE
    rough = {x.collective.kind for x in one.collectives if _axes(x) == axes and not x.exact}
    kinds = one.sent().get(axes, {})
    return (
        ", ".join(
            f"{kind} {f'{_MARK} ' if kind in rough else ''}{bytes_text(size)}"
            for kind, size in kinds.items()
        )
        or _NONE
    )


def _title(one: SimulatedMesh) -> str:
    on = f" of {one.topology}" if one.topology else ""
    return f"{counted(one.devices, 'device')}{on} ({axes_text(one.mesh)})"


def _notes(one: SimulatedMesh, *, inside: bool = True) -> list[str]:
    """Returns what the mesh does not divide, what lies whole, and where numbers come from."""
    notes = []
    if one.does_not_divide:
        notes.append(f"does not divide {one.does_not_divide}")
    whole = one.could_be_divided() if inside else []
    if whole:
        names = [
            f"{x.name} along {x.axis} ({bytes_text(x.saved_bytes)})" for x in whole[:_MOST_WHOLE]
        ]
        more = len(whole) - _MOST_WHOLE
        names += [f"{more} more"] if more > 0 else []
        notes.append(f"whole, though a device could save: {', '.join(names)}")
    if one.extrapolated_from:
        *used, check = map(axes_text, one.extrapolated_from)
        notes.append(f"extrapolated from {', '.join(used)}; {check} was predicted exactly")
    return notes


def _headings(one: SimulatedMesh) -> list[str]:
    timed = any(row.modelled_s is not None for row in one.collectives)
    return [*_COLLECTIVES, *["modelled"] * timed]


def _rows(one: SimulatedMesh) -> list[list[str]]:
    """Returns a row for each collective, equal ones as one, the largest first."""
    timed = len(_headings(one)) > len(_COLLECTIVES)
    found: dict[tuple[str, ...], list[float]] = {}
    for row in one.collectives:
        of = row.collective
        shift = "" if of.shift is None else f" {of.shift:+d}"
        key = (
            of.kind,
            f"{'' if row.exact else f'{_MARK} '}{bytes_text(of.wire_bytes or 0)}",
            f"{_axes(row)}{shift}" if of.axes else f"{of.group} devices",
            "XLA" if of.asked == "xla" else "the program",
            purpose_text(of),
            line_in(of.source),
            "" if row.modelled_s is not None else _NONE,
        )
        so_far = found.setdefault(key, [0, 0, 0])
        counts = (of.times_per_step or 1, row.sent_bytes, row.modelled_s or 0)
        found[key] = [a + b for a, b in zip(so_far, counts, strict=True)]
    return [
        [key[0], count_text(times), *key[1:-1], *[key[-1] or duration_text(time)] * timed]
        for key, (times, _, time) in sorted(found.items(), key=lambda item: -item[1][1])
    ]

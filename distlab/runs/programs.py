"""The compiled programs of a run: why each was made, what is inside, and where it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, final, overload

from distlab.events import Collective, Compile, Event, Step, Strategy, Unknown
from distlab.folds import Programs as Fold
from distlab.text.bytes import bytes_text
from distlab.text.html import card

_MOST_TEXT: Final = 60
_MOST_LISTED: Final = 5


@final
@dataclass(frozen=True)
class Program:
    """One compiled program; `Run.programs` gives it.

    Attributes:
      function: the function given to `run`.
      cause: why it was compiled: `"new function"`, `"new shapes"`, `"new structure"`.
      changed: which argument changed and how, empty for a new function.
      arguments: what one replica was given, as `name: dtype[shape]`.
      devices: names of the devices that run it, in replica order.
      collectives: its collectives.
      flops: floating-point operations of one execution on one device; None
        where XLA does not say, here and below.
      peak_bytes: the most memory that one execution holds on one device.
      steps: how many steps ran it.
      compile_seconds: what tracing and compiling took.
      event: all that was recorded of it.
    """

    function: str
    cause: str
    changed: str
    arguments: tuple[str, ...]
    devices: tuple[str, ...]
    collectives: tuple[Collective, ...]
    flops: float | None
    peak_bytes: int | None
    steps: int
    compile_seconds: float
    event: Compile

    def __repr__(self) -> str:
        """Names the function, why it was compiled and what it combines."""
        combined = ", ".join(
            f"{one.kind} of {bytes_text(one.operand_bytes)}" for one in self.collectives
        )
        return (
            f"<Program of {self.function}: {self.cause}, {self.steps:,} steps on "
            f"{len(self.devices)} devices; {combined or 'no collectives'}>"
        )

    def _repr_html_(self) -> str | None:
        """Shows in notebooks what it does on which devices."""
        told = _told(self)
        if told is None:
            return None
        exchanged = told["collectives_full"].split("; ")
        rows = [
            ["why compiled", f"{told['why']}, in {self.compile_seconds:.2g} s"],
            ["runs on", ", ".join(self.devices) or "devices that were not recorded"],
            *_listed("each replica gets", self.arguments),
            *_listed("devices exchange", [text for text in exchanged if text]),
            ["work on each", told["work"]],
            ["memory on each", f"{told['memory']}: {told['memory_full']}"],
        ]
        return card(f"Program of {told['function']}", f"{told['steps']} steps", (), rows)


@final
class Programs(Sequence[Program]):
    """The programs of a run, the oldest first."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = tuple(programs)

    @overload
    def __getitem__(self, place: int) -> Program: ...

    @overload
    def __getitem__(self, place: slice) -> Programs: ...

    def __getitem__(self, place: int | slice) -> Program | Programs:
        """Returns one of them, or some."""
        if isinstance(place, slice):
            return Programs(self._programs[place])
        return self._programs[place]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._programs)

    def __repr__(self) -> str:
        """Lists them."""
        return f"[{', '.join(map(repr, self._programs))}]"

    def _repr_html_(self) -> str | None:
        """Shows in notebooks a row for each."""
        rows = [_told(program) for program in self._programs]
        columns = ("function", "why", "steps", "collectives", "work", "memory")
        cells = [[_short(told[name]) for name in columns] for told in rows if told is not None]
        if len(cells) < len(rows):
            return None
        headings = ("function", "why compiled", "steps", "devices exchange", "work", "memory")
        return card("Programs", f"{len(rows)} compiled, work and memory of one device", headings,
                    cells)  # fmt: skip


def read_programs(events: Callable[[str], Iterator[Event | Unknown]]) -> Programs:
    """Reads the programs of a run.

    Args:
      events: gives the run's events of a kind.
    """
    steps: Counter[int] = Counter()
    for event in events("step"):
        if isinstance(event, Step):
            steps[event.program] += 1
    devices = {e.strategy: e.devices for e in events("strategy") if isinstance(e, Strategy)}
    return Programs([
        Program(
            function=one.function,
            cause=one.cause,
            changed=one.changed,
            arguments=tuple(one.arguments),
            devices=tuple(devices.get(one.strategy, ())),
            collectives=tuple(one.collectives),
            flops=one.flops,
            peak_bytes=one.peak_bytes,
            steps=steps[one.program],
            compile_seconds=(one.trace_ns + one.compile_ns) / 1e9,
            event=one,
        )
        for one in events("compile")
        if isinstance(one, Compile)
    ])  # fmt: skip


def _told(program: Program) -> dict[str, str] | None:
    """Returns the texts that the dashboard has for it; None where that is not installed."""
    if find_spec("bokeh") is None:
        return None
    from distlab.page.programs import program_rows

    fold = Fold()
    fold.add([program.event])
    columns: dict[str, Any] = {**fold.columns(), "steps": [program.steps]}
    return {name: texts[0] for name, texts in program_rows(columns).items()}


def _listed(title: str, texts: Sequence[str]) -> list[list[str]]:
    """Returns a row for each text, the title on the first one; their number is limited."""
    kept = [*texts[:_MOST_LISTED]] or ["nothing"]
    if len(texts) > _MOST_LISTED:
        kept.append(f"and {len(texts) - _MOST_LISTED} more")
    return [[title if not n else "", text] for n, text in enumerate(kept)]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}\u2026"

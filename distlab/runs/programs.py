"""The compiled programs of a run: the cause, contents and devices of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, final

from distlab.events import Collective, Compile, Event, Step, Strategy, Unknown
from distlab.folds import ProgramColumns
from distlab.folds import Programs as Fold
from distlab.text.bytes import bytes_text
from distlab.text.html import card
from distlab.text.printable import printable

_MOST_TEXT: Final = 60
_MOST_LISTED: Final = 5


@final
@dataclass(frozen=True)
class Program:
    """One compiled program, an element of `Run.programs`.

    Attributes:
      function: The function passed to `run`, or the observed one.
      cause: Why it was compiled: `"new function"`, `"new shapes"`, `"new structure"`; of an
        observed function also `"new sharding"`.
      changed: The argument that changed and how, empty for a new function.
      arguments: The arguments of one replica, as `name: dtype[shape]`; on a mesh whole arrays,
        with their specs.
      devices: Names of the devices that execute it, in replica order.
      kind: `"strategy"`; `"mesh"` of plain JAX.
      collectives: Its collectives.
      flops: Floating-point operations of one execution on one device; None, here
        and below, when XLA does not report it.
      peak_bytes: The most memory that one execution holds on one device.
      steps: Number of steps that executed it; 0 where steps are not counted.
      compile_seconds: Seconds of tracing and compiling.
      event: The `compile` event.
    """

    function: str
    cause: str
    changed: str
    arguments: tuple[str, ...]
    devices: tuple[str, ...]
    kind: str
    collectives: tuple[Collective, ...]
    flops: float | None
    peak_bytes: int | None
    steps: int
    compile_seconds: float
    event: Compile

    def __repr__(self) -> str:
        """Names the function, why it was compiled and its collectives."""
        combined = ", ".join(
            f"{one.kind} of {bytes_text(one.operand_bytes)}" for one in self.collectives
        )
        steps = f"{self.steps:,} steps " if self._counted else ""
        return (
            f"<Program of {printable(self.function)}: {self.cause}, {steps}on "
            f"{len(self.devices)} devices; {combined or 'no collectives'}>"
        )

    @property
    def _counted(self) -> bool:
        """False on a mesh without steps, where they may not be counted."""
        return self.steps > 0 or self.kind == "strategy"

    def _repr_html_(self) -> str | None:
        """Shows its arguments, collectives, work and memory in notebooks."""
        texts = _texts_of(self)
        if texts is None:
            return None
        exchanged = texts["collectives_full"].split("; ")
        rows = [
            ["why compiled", f"{texts['why']}, in {self.compile_seconds:.2g} s"],
            ["runs on", ", ".join(self.devices) or "devices that were not recorded"],
            *_listed("arguments" if self.kind == "mesh" else "each replica gets", self.arguments),
            *_listed("devices exchange", [text for text in exchanged if text]),
            ["work on each", texts["work"]],
            ["memory on each", f"{texts['memory']}: {texts['memory_full']}"],
        ]
        steps = f"{texts['steps']} steps" if self._counted else ""
        return card(f"Program of {texts['function']}", steps, (), rows)


@final
class Programs(tuple[Program, ...]):
    """The programs of a run, the oldest first."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Shows a row for each program in notebooks."""
        rows = [_texts_of(program) for program in self]
        columns = ("function", "why", "steps", "collectives", "work", "memory")
        cells = [[_short(texts[name]) for name in columns] for texts in rows if texts is not None]
        if len(cells) < len(rows):
            return None
        headings = ("function", "why compiled", "steps", "devices exchange", "work", "memory")
        return card("Programs", f"{len(rows)} compiled, work and memory of one device", headings,
                    cells)  # fmt: skip


def read_programs(events: Callable[[str], Iterator[Event | Unknown]]) -> Programs:
    """Reads the programs of a run."""
    steps: Counter[int] = Counter()
    for event in events("step"):
        if isinstance(event, Step):
            steps[event.program] += 1
    strategies = {e.strategy: e for e in events("strategy") if isinstance(e, Strategy)}
    unknown = Strategy(time_ns=0, strategy=-1, name="", devices=[])
    return Programs(
        Program(
            function=one.function,
            cause=one.cause,
            changed=one.changed,
            arguments=tuple(one.arguments),
            devices=tuple(strategies.get(one.strategy, unknown).devices),
            kind=strategies.get(one.strategy, unknown).form,
            collectives=tuple(one.collectives),
            flops=one.flops,
            peak_bytes=one.peak_bytes,
            steps=steps[one.program],
            compile_seconds=(one.trace_ns + one.compile_ns) / 1e9,
            event=one,
        )
        for one in events("compile")
        if isinstance(one, Compile)
    )


def _texts_of(program: Program) -> dict[str, str] | None:
    """Returns the dashboard's texts for a program; None where the dashboard is not installed."""
    if find_spec("bokeh") is None:
        return None
    from distlab.page.programs import program_rows

    fold = Fold()
    fold.add([program.event])
    columns: ProgramColumns = {**fold.columns(), "steps": [program.steps]}
    return {name: values[0] for name, values in program_rows(columns).items()}


def _listed(title: str, texts: Sequence[str]) -> list[list[str]]:
    """Returns a row for each text, the title on the first one; their number is limited."""
    kept = [*texts[:_MOST_LISTED]] or ["nothing"]
    if len(texts) > _MOST_LISTED:
        kept.append(f"and {len(texts) - _MOST_LISTED} more")
    return [[title if not n else "", text] for n, text in enumerate(kept)]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}\u2026"

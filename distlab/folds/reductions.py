"""What was combined across replicas: from Python, and inside the programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from distlab.events import Collective, Compile, Event, Reduction, Step
from distlab.folds._fold import Columns

_MOST_ROWS = 500


class _Python(NamedTuple):
    """What makes two reductions from Python the same kind of thing."""

    verb: str
    op: str
    algorithm: str
    dtype: str
    bytes: int
    participants: int


class _Inside(NamedTuple):
    """What makes collectives of a function's programs the same kind of thing."""

    function: str
    kind: str
    dtype: str
    bytes: int
    participants: int
    at_least: bool


class Reductions:
    """Each kind of reduction that ran, once, with how often it did.

    What runs inside a program is read from the compiled program, once, and
    multiplied by the steps that ran it: nothing is measured while it runs. A
    function has a program for each shape of its arguments; a reduction that all
    of them do is one row.

    Columns (one row for each kind of reduction, the most bytes first):
      where: list of `"inside FUNCTION"` or `"from Python"`.
      inside: list of bool: whether it is part of a compiled program.
      kind: list of `"all-reduce"`, ..., or `"reduce MEAN"`, `"gather"`.
      how: list of tuples of texts: the algorithm, or the operations and lines of
        the user's program, as far as XLA kept them.
      dtype: list of element types.
      bytes: list of operand bytes on one replica, each time.
      participants: list of how many replicas took part.
      count: list of how often it ran.
      at_least: list of bool: the program does not say how often one step runs
        it, so `count` counts it once a step.
      total_bytes: list of `bytes * count`: operand bytes of one replica, which
        is not what travelled over a network.
      mean_ms: list of milliseconds the caller spent in the call, NaN inside a
        program (nothing outside can time it).
      rows_left_out: single number: kinds beyond 500, not counted.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Compile, Step, Reduction)

    def __init__(self) -> None:
        self.version = 0
        self._programs: dict[int, Compile] = {}
        self._steps: dict[int, int] = {}
        self._python: dict[_Python, tuple[int, int]] = {}
        self._left_out = 0

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            match event:
                case Step():
                    self._steps[event.program] = self._steps.get(event.program, 0) + 1
                case Compile():
                    self._programs[event.program] = event
                case Reduction():
                    self._take(event)
                case _:
                    pass
        self.version += bool(events)

    def _take(self, event: Reduction) -> None:
        key = _Python(
            event.verb, event.op, event.algorithm, event.dtype, event.bytes, event.participants
        )
        if key not in self._python and len(self._python) >= _MOST_ROWS:
            self._left_out += 1
            return
        count, duration_ns = self._python.get(key, (0, 0))
        self._python[key] = (count + 1, duration_ns + event.duration_ns)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        rows = [_python_row(key, *value) for key, value in self._python.items()]
        # A recording starts with the programs that were made before it, and may use none of them.
        ran = [program for program in self._programs.values() if program.program in self._steps]
        rows += _inside_rows(ran, self._steps)
        rows.sort(key=lambda row: (-row["total_bytes"], row["where"], row["kind"], row["bytes"]))
        names = _python_row(_Python("", "", "", "", 0, 0), 1, 0)
        columns: Columns = {name: [row[name] for row in rows] for name in names}
        columns["rows_left_out"] = self._left_out
        return columns


def _inside_rows(programs: list[Compile], steps: dict[int, int]) -> list[Columns]:
    """One row for what is the same in all programs of a function."""
    counts: dict[_Inside, int] = {}
    sources: dict[_Inside, dict[str, None]] = {}
    # A ragged program is put together from pieces and names the line that called
    # `run`; so it is asked only for what no other program has.
    for program in sorted(programs, key=lambda program: program.mode == "ragged"):
        here: dict[_Inside, dict[str, None]] = {}
        for collective in program.collectives:
            key = _inside(program.function, collective)
            times = 1 if collective.times_per_step is None else collective.times_per_step
            counts[key] = counts.get(key, 0) + times * steps[program.program]
            here.setdefault(key, {})[collective.source] = None
        for key, found in here.items():
            if program.mode != "ragged" or key not in sources:
                sources.setdefault(key, {}).update(found)
    return [_inside_row(key, tuple(sources[key]), count) for key, count in counts.items()]


def _inside(function: str, collective: Collective) -> _Inside:
    return _Inside(
        function,
        collective.kind,
        collective.dtype,
        collective.operand_bytes,
        collective.participants,
        collective.times_per_step is None,
    )


def _python_row(key: _Python, count: int, duration_ns: int) -> Columns:
    return {
        "where": "from Python",
        "inside": False,
        "kind": f"{key.verb} {key.op}".strip(),
        "how": (key.algorithm.replace("_", " "),),
        "dtype": key.dtype,
        "bytes": key.bytes,
        "participants": key.participants,
        "count": count,
        "at_least": False,
        "total_bytes": key.bytes * count,
        "mean_ms": duration_ns / count / 1e6,
    }


def _inside_row(key: _Inside, sources: tuple[str, ...], count: int) -> Columns:
    return {
        "where": f"inside {key.function}",
        "inside": True,
        "kind": key.kind,
        "how": sources,
        "dtype": key.dtype,
        "bytes": key.bytes,
        "participants": key.participants,
        "count": count,
        "at_least": key.at_least,
        "total_bytes": key.bytes * count,
        "mean_ms": float("nan"),
    }

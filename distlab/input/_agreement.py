"""What the workers' processes agree on before each step of a distributed dataset.

All workers take as many steps as the one with the most data; one that has none left receives
empty batches. So before each step every worker says what it has read: the shapes of its
parts, that its data has ended, or the error that reading raised. This goes through the
coordination service, from the thread that reads ahead: a collective of the devices there would
come between those of the program, in another order on each worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import msgspec
import numpy as np

from distlab.data.plan.engine import State
from distlab.data.plan.nest import map_nest
from distlab.errors import CardinalityError, StructureError, ValueShapeError
from distlab.input._rounds import Rounds
from distlab.input._steps import Parts, Reader, Shapes, Step, Steps, flattened
from distlab.input.spec import varying_spec
from distlab.processes.faults import Fault, fault_of, raise_fault
from distlab.processes.group import ProcessGroup, Worker

_AHEAD: Final = 2
"""Steps that are read ahead, so that the program does not wait for the workers' agreement."""
_STRINGS: Final = "str"


class Column(NamedTuple):
    """One component of a worker's step.

    Attributes:
      dtype: Its dtype; `"str"` for strings, which stay in host memory.
      shapes: The shape of each local replica's part.
    """

    dtype: str
    shapes: Shapes


class Said(msgspec.Struct, frozen=True):
    """What a worker says of a step.

    Attributes:
      columns: The components that it has read; None at the end of its data.
      fault: The error that reading raised.
    """

    columns: list[Column] | None = None
    fault: Fault | None = None


@final
class AgreedSteps(Steps):
    """Steps of which all workers take equally many.

    Args:
      steps: The steps of this worker's own data.
      processes: The workers' processes.
      number: The dataset's number, the same in all processes.
      replicas: The number of this worker's replicas.
      lengths: The number of steps that each worker has; None where one does not know.
      endless: Whether this worker's data has no end.
    """

    least_ahead = _AHEAD

    def __init__(
        self,
        steps: Steps,
        processes: ProcessGroup,
        number: int,
        replicas: int,
        lengths: Sequence[int | None],
        *,
        endless: bool,
    ) -> None:
        self.policy, self.nominal, self.fills = steps.policy, steps.nominal, True
        self._steps = steps
        self._processes = processes
        self._number = number
        self._replicas = replicas
        self._lengths = lengths
        self._endless = endless
        self._passes = 0

    def open(self) -> Reader:
        """Starts a pass. All workers start their passes in the same order."""
        self._passes += 1
        place = f"input/{self._number}/{self._passes}"
        return _AgreedReader(self._steps, Rounds(self._processes, place), self._replicas)

    @property
    def local_spec(self) -> Any:
        """The specs of a replica's part, which may be empty at the end."""
        spec = self._steps.local_spec
        return spec if self._endless else varying_spec(spec)

    @property
    def endless(self) -> bool:
        """Whether this worker's data has no end, and so the steps of all."""
        return self._endless

    def __len__(self) -> int:
        """Returns the number of steps of the worker that has the most."""
        known = [length for length in self._lengths if length is not None]
        if len(known) < len(self._lengths):
            raise CardinalityError(
                "The number of steps is that of the worker with the most data, and a worker does "
                "not know its own. Count the steps in the loop."
            )
        return max(known)

    def __repr__(self) -> str:
        """Names the datasets."""
        return repr(self._steps)


@final
class _AgreedReader(Reader):
    def __init__(self, steps: Steps, rounds: Rounds, replicas: int) -> None:
        self._steps, self._rounds, self._replicas = steps, rounds, replicas
        self._reader = steps.open()
        self._structure: Any = None
        self._ended = False
        self._error: Exception | None = None

    def read(self) -> Step:
        if self._ended:
            raise StopIteration
        step, said = self._own()
        everyone = self._rounds.exchange(msgspec.json.encode(said))
        answers = [msgspec.json.decode(each, type=Said) for each in everyone]
        self._raise_faults(answers)
        if all(answer.columns is None for answer in answers):
            self._ended = True
            raise StopIteration
        columns = _common(answers, self._rounds.processes.workers, self._replicas)
        if step is None:
            step = self._empty(columns)
        self._structure = step.structure
        return step._replace(
            shapes=[column.shapes for column in columns],
            complete=step.complete and all(answer.columns is not None for answer in answers),
        )

    def state(self) -> State:
        return self._reader.state()

    def restore(self, state: State) -> None:
        self._reader.restore(state)
        self._ended = False

    def interrupt(self) -> None:
        self._rounds.close()

    def close(self) -> None:
        self._rounds.close()
        self._reader.close()

    def _own(self) -> tuple[Step | None, Said]:
        """Reads this worker's part of the step, and says what it is."""
        try:
            step = self._reader.read()
            return step, Said([_column(parts) for parts in step.columns])
        except StopIteration:
            return None, Said()
        except Exception as error:  # noqa: BLE001 - raised again, once the others know
            self._error = error
            return None, Said(fault=fault_of(error))

    def _raise_faults(self, answers: list[Said]) -> None:
        processes = self._rounds.processes
        error, self._error = self._error, None
        if error is not None:
            raise error
        for answer, worker in zip(answers, processes.workers, strict=True):
            if answer.fault is not None:
                raise_fault(answer.fault, worker)

    def _empty(self, columns: list[Column]) -> Step:
        """Returns a step of empty batches, like those of the other workers."""
        if self._structure is None:
            spec = self._steps.local_spec
            self._structure = flattened(map_nest(lambda leaf: np.zeros((), leaf.dtype), spec))[1]
        if self._structure.num_leaves != len(columns):
            raise StructureError(
                "The workers' datasets must have elements of one structure. This worker's is "
                f"{self._structure}, and another has {len(columns)} components."
            )
        parts = [[_no_rows(column)] * self._replicas for column in columns]
        return Step(self._structure, parts, [0] * self._replicas, None, complete=False)


def _column(parts: Parts) -> Column:
    first = parts[0]
    if isinstance(first, bytes) or first.dtype.kind in "OSU":
        return Column(_STRINGS, tuple(np.shape(part) for part in parts))
    return Column(str(first.dtype), tuple(part.shape for part in parts))


def _common(answers: list[Said], workers: Sequence[Worker], replicas: int) -> list[Column]:
    """Returns the components on the replicas of all workers; those without data have empty ones."""
    present = [
        (answer.columns, worker)
        for answer, worker in zip(answers, workers, strict=True)
        if answer.columns is not None
    ]
    counts = {worker.name: len(columns) for columns, worker in present}
    if len(set(counts.values())) > 1:
        raise StructureError(
            "The workers' datasets must have elements of one structure, and their numbers of "
            f"components are {counts}. Make the same dataset on every worker."
        )
    common = []
    for number in range(len(present[0][0]) if present else 0):
        own = {worker.name: columns[number] for columns, worker in present}
        forms = {(column.dtype, len(column.shapes[0])) for column in own.values()}
        if len(forms) > 1:
            raise ValueShapeError(
                "A component must have one dtype and one number of dimensions on all workers, got "
                f"{ {name: f'{c.dtype}{list(c.shapes[0])}' for name, c in own.items()} }. Convert "
                "them in the dataset."
            )
        first = next(iter(own.values()))
        empty = _no_rows(first).shape if first.dtype != _STRINGS else ()
        shapes = [
            shape
            for answer in answers
            for shape in (
                [empty] * replicas if answer.columns is None else answer.columns[number].shapes
            )
        ]
        common.append(Column(first.dtype, tuple(shapes)))
    return common


def _no_rows(column: Column) -> Any:
    """Returns the component of an empty batch."""
    shape = column.shapes[0]
    if column.dtype == _STRINGS:
        return np.empty((0, *shape[1:]), object) if shape else b""
    empty = np.zeros((0, *shape[1:]) if shape else (), np.dtype(column.dtype))
    empty.flags.writeable = False
    return empty

"""Agreement of the workers' processes: on the dataset when it is made, and before each step.

All workers take as many steps as the one with the most data; one that has none left receives
empty batches. So before each step every worker sends the shapes of the parts that it has read,
the end of its data, or the error that reading raised. This goes through the coordination
service, from the thread that reads ahead: a collective of the devices there would come between
those of the program, in another order on each worker.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import msgspec
import numpy as np

from distlab.data import INFINITE_CARDINALITY, AutoShardPolicy, Dataset
from distlab.data.plan.engine import Pass, State
from distlab.data.plan.nest import map_nest
from distlab.data.plan.plan import Node, source_of, walk
from distlab.data.plan.seeded import chosen_seeds, reseeded
from distlab.data.sharding.auto_shard import effective_policy
from distlab.errors import CardinalityError, StructureError, ValueShapeError, WorkerError
from distlab.input.batches import Batches, Parts, Shapes, Step, flattened
from distlab.input.spec import varying_spec
from distlab.processes.faults import Fault, fault_of, raise_fault
from distlab.processes.group import ProcessGroup, Worker
from distlab.threads import working

_AHEAD: Final = 2
"""Steps that are read ahead, so that the program does not wait for the workers' agreement."""
_STRINGS: Final = "str"
_REMEDY: Final = (
    "All workers take each step together. Run the same loop on each, and give "
    "communication_options a larger timeout_seconds where one is only slow."
)


class _Introduction(msgspec.Struct, frozen=True):
    """A worker's message about its dataset: the chief's seeds count.

    `form` fixes the shapes of all batches; None where they show in reading.
    """

    seeds: tuple[int, ...] = ()
    form: str | None = None
    length: int | None = None
    fault: Fault | None = None


def agreed_batches(
    processes: ProcessGroup,
    replicas: int,
    make: Callable[[], Dataset],
    steps_of: Callable[[Dataset], Batches],
    *,
    global_batches: bool,
) -> Batches:
    """Returns the steps of a dataset of which the process of each worker reads its part.

    All call this in the same order. With other random seeds than the chief's, shards would overlap.
    """
    number = processes.next_number("dataset number")
    try:
        dataset = make()
        steps = steps_of(dataset)
        form = _form(dataset) if global_batches else None
        seeds = tuple(chosen_seeds(dataset.plan))
        said = _Introduction(seeds, form, _length(steps))
    except Exception as error:
        _introduce(processes, _Introduction(fault=fault_of(error)))
        raise
    everyone = _introduce(processes, said)
    for answer, worker in zip(everyone, processes.workers, strict=True):
        if answer.fault is not None:
            raise_fault(answer.fault, worker)
    plan = reseeded(dataset.plan, everyone[0].seeds)
    if plan is not dataset.plan:
        steps = steps_of(dataset.with_plan(plan))
    if form is not None and all(answer.form == form for answer in everyone):
        return steps  # each worker knows the shapes of all batches
    lengths = [answer.length for answer in everyone]
    endless = dataset.cardinality() == INFINITE_CARDINALITY
    return AgreedBatches(steps, processes, number, replicas, lengths, endless=endless)


def _introduce(processes: ProcessGroup, said: _Introduction) -> list[_Introduction]:
    texts = processes.exchange("dataset", msgspec.json.encode(said).decode())
    return [msgspec.json.decode(text, type=_Introduction) for text in texts]


def _form(dataset: Dataset) -> str | None:
    """Returns a text that fixes the shapes of global batches; None unless all is read of arrays."""
    if effective_policy(dataset) is not AutoShardPolicy.DATA or source_of(dataset.plan) is None:
        return None
    return "\n".join(map(_described, walk(dataset.plan)))


def _described(node: Node) -> str:
    settings = {
        field.name: getattr(node, field.name)
        for field in dataclasses.fields(node)
        if field.name != "seed"
    }
    numbers = {name: value for name, value in settings.items() if isinstance(value, int | None)}
    return f"{type(node).__name__} {numbers} {node.cardinality} {node.spec}"


def _length(steps: Batches) -> int | None:
    try:
        return len(steps)
    except CardinalityError:
        return None


class _Column(NamedTuple):
    """A component of a worker's step: its dtype (`"str"` for strings) and its replicas' shapes."""

    dtype: str
    shapes: Shapes


class _Said(msgspec.Struct, frozen=True):
    """A worker's message about a step; without columns at the end of its data."""

    columns: list[_Column] | None = None
    fault: Fault | None = None


@final
class AgreedBatches(Batches):
    """Steps of which all workers take equally many; unknown lengths are None."""

    least_ahead = _AHEAD

    def __init__(
        self,
        steps: Batches,
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

    def open(self) -> Pass:
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
        """True if this worker's data has no end, and so the steps of all."""
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
class _AgreedReader(Pass):
    def __init__(self, steps: Batches, rounds: Rounds, replicas: int) -> None:
        self._steps, self._rounds, self._replicas = steps, rounds, replicas
        self._reader = steps.open()
        self._structure: Any = None
        self._ended = False
        self._error: Exception | None = None

    def __next__(self) -> Step:
        if self._ended:
            raise StopIteration
        step, said = self._own()
        everyone = self._rounds.exchange(msgspec.json.encode(said))
        answers = [msgspec.json.decode(each, type=_Said) for each in everyone]
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

    def get_state(self) -> State:
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        self._reader.set_state(state)
        self._ended = False

    def interrupt(self) -> None:
        """Ends a wait in another thread."""
        self._rounds.close()

    def close(self) -> None:
        self._rounds.close()
        self._reader.close()

    def _own(self) -> tuple[Step | None, _Said]:
        """Reads this worker's part of the step, and describes it."""
        try:
            step: Step = next(self._reader)
            return step, _Said([_column(parts) for parts in step.columns])
        except StopIteration:
            return None, _Said()
        except Exception as error:  # noqa: BLE001 - raised again, once the others know
            self._error = error
            return None, _Said(fault=fault_of(error))

    def _raise_faults(self, answers: list[_Said]) -> None:
        processes = self._rounds.processes
        error, self._error = self._error, None
        if error is not None:
            raise error
        for answer, worker in zip(answers, processes.workers, strict=True):
            if answer.fault is not None:
                raise_fault(answer.fault, worker)

    def _empty(self, columns: list[_Column]) -> Step:
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


def _column(parts: Parts) -> _Column:
    first = parts[0]
    if isinstance(first, bytes) or first.dtype.kind in "OSU":
        return _Column(_STRINGS, tuple(np.shape(part) for part in parts))
    return _Column(str(first.dtype), tuple(part.shape for part in parts))


def _common(answers: list[_Said], workers: Sequence[Worker], replicas: int) -> list[_Column]:
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
        common.append(_Column(first.dtype, tuple(shapes)))
    return common


def _no_rows(column: _Column) -> Any:
    """Returns the component of an empty batch."""
    shape = column.shapes[0]
    if column.dtype == _STRINGS:
        return np.empty((0, *shape[1:]), object) if shape else b""
    empty = np.zeros((0, *shape[1:]) if shape else (), np.dtype(column.dtype))
    empty.flags.writeable = False
    return empty


@final
class Rounds:
    """Messages that each worker sends to all others, one in each round, from any thread."""

    def __init__(self, processes: ProcessGroup, place: str) -> None:
        self.processes, self._place = processes, place
        self._round = 0
        self._closed = False
        self._failure: WorkerError | None = None

    def exchange(self, message: bytes) -> list[bytes]:
        """Returns the messages of all workers in this round."""
        if self._failure is not None:
            raise self._failure  # the others may be a round ahead, so no other one can follow
        working.add(threading.current_thread())
        processes, number = self.processes, self._round
        place, own = f"{self._place}/{number}/", processes.index
        processes.kv.set(f"{place}{own}", message.decode())
        until = processes.until()
        try:
            found = [
                message
                if worker.index == own
                else self._awaited(f"{place}{worker.index}", worker, until)
                for worker in processes.workers
            ]
        except WorkerError as error:
            self._failure = error
            raise
        if number:  # all have sent this round's message, so they have read the last round's
            processes.kv.delete(f"{self._place}/{number - 1}/{own}")
        self._round += 1
        return found

    def close(self) -> None:
        """Ends a wait in another thread."""
        self._closed = True

    def _awaited(self, key: str, worker: Worker, until: float) -> bytes:
        place = f"batch {self._round} of a distributed dataset"
        text = self.processes.awaited(
            key, worker, place, until, remedy=_REMEDY, check=self._require_open
        )
        return text.encode()

    def _require_open(self) -> None:
        if self._closed:
            raise StopIteration
        self.processes.check()

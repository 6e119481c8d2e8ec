"""What the workers' processes agree on when a dataset is distributed over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec

from distlab.data import INFINITE_CARDINALITY, AutoShardPolicy, Dataset
from distlab.data.plan.plan import Node, source_of, walk
from distlab.data.plan.seeded import chosen_seeds, reseeded
from distlab.data.sharding.auto_shard import effective_policy
from distlab.errors import CardinalityError
from distlab.input._agreement import AgreedSteps
from distlab.input._steps import Steps
from distlab.processes.faults import Fault, fault_of, raise_fault
from distlab.processes.group import ProcessGroup


class _Introduction(msgspec.Struct, frozen=True):
    """What a worker says of its dataset.

    Attributes:
      seeds: The seeds that were chosen at random; the chief's count.
      form: What decides on the shapes of all batches; None where that shows in reading.
      length: The number of steps of this worker; None when unknown.
      fault: The error that making the dataset raised.
    """

    seeds: tuple[int, ...] = ()
    form: str | None = None
    length: int | None = None
    fault: Fault | None = None


def agreed_steps(
    processes: ProcessGroup,
    replicas: int,
    make: Callable[[], Dataset],
    steps_of: Callable[[Dataset], Steps],
    *,
    global_batches: bool,
) -> Steps:
    """Returns the steps of a dataset of which the process of each worker reads its part.

    All workers must call this for their datasets in the same order. They take the chief's
    random seeds: with others, the shards of a shuffled dataset would overlap.
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
    return AgreedSteps(steps, processes, number, replicas, lengths, endless=endless)


def _introduce(processes: ProcessGroup, said: _Introduction) -> list[_Introduction]:
    texts = processes.exchange("dataset", msgspec.json.encode(said).decode())
    return [msgspec.json.decode(text, type=_Introduction) for text in texts]


def _form(dataset: Dataset) -> str | None:
    """Returns what decides on the shapes of a dataset's global batches, without its seeds.

    None unless every worker reads all of it, from arrays by index arithmetic.
    """
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


def _length(steps: Steps) -> int | None:
    try:
        return len(steps)
    except CardinalityError:
        return None

"""Datasets that several workers read together: their parts, the end, seeds and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.data import AutoShardPolicy, Dataset
from distlab.errors import (
    CardinalityError,
    StructureError,
    ValueShapeError,
    WorkerError,
)
from distlab.input import distribute
from distlab.input.batches import Batches, Step
from distlab.input.context import InputContext
from distlab.input.workers import AgreedBatches, agreed_batches
from tests.input.feeding import with_policy
from tests.input.threads_as_workers import Store, as_threads, groups, on_all

Make = Callable[[], Dataset]


def distributed(makes: list[Make], replicas: int = 1, store: Store | None = None) -> list[Any]:
    """Distributes each worker's dataset of global batches; returns steps, or errors."""
    workers = len(makes)
    members = groups(workers, store)

    def distribute_on(worker: int) -> Batches:
        context = InputContext(workers, worker, workers * replicas)
        return agreed_batches(
            members[worker],
            replicas,
            makes[worker],
            lambda whole: distribute.steps_of(whole, context, replicas),
            global_batches=True,
        )

    return on_all([lambda n=n: distribute_on(n) for n in range(workers)])  # type: ignore[misc]


def from_functions(makes: list[Make], replicas: int = 1) -> list[Any]:
    """The same for datasets of per-replica batches."""
    members = groups(len(makes))
    return on_all(
        [
            lambda n=n: agreed_batches(  # type: ignore[misc]
                members[n],
                replicas,
                makes[n],
                lambda one: distribute.replica_steps([one], replicas, fills=True),
                global_batches=False,
            )
            for n in range(len(makes))
        ]
    )


def taken(steps: Batches, limit: int | None = None) -> list[Step]:
    """Reads the steps of a pass."""
    reader = steps.open()
    found: list[Step] = []
    while limit is None or len(found) < limit:
        try:
            found.append(next(reader))
        except StopIteration:
            break
    reader.close()
    return found


def all_taken(all_steps: list[Any], limit: int | None = None) -> list[Any]:
    """Reads the steps of all workers at the same time; returns lists of steps, or errors."""
    return on_all([lambda steps=steps: taken(steps, limit) for steps in all_steps])  # type: ignore[misc]


def parts(steps: list[Step]) -> list[list[Any]]:
    """Returns each replica's part of the first component, by step."""
    return [[np.asarray(part).tolist() for part in step.columns[0]] for step in steps]


def recorded(dataset: Dataset, workers: int, replicas: int) -> list[list[list[Any]]]:
    """What TensorFlow gives each worker, and empty batches until nobody has data."""
    each = [
        [
            [np.asarray(part).tolist() for part in step]
            for step in dl.data.worker_batches(dataset, workers, worker, replicas)
        ]
        for worker in range(workers)
    ]
    most = max(map(len, each))
    empty: list[list[Any]] = [[]] * replicas
    return [found + [empty] * (most - len(found)) for found in each]


policies = st.sampled_from([AutoShardPolicy.AUTO, AutoShardPolicy.DATA, AutoShardPolicy.OFF])


@given(
    n=st.integers(0, 30),
    batch=st.integers(1, 9),
    workers=st.integers(2, 4),
    replicas=st.integers(1, 3),
    policy=policies,
    mapped=st.booleans(),
    drop=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_workers_read_their_parts_in_equally_many_steps(
    n: int,
    batch: int,
    workers: int,
    replicas: int,
    policy: AutoShardPolicy,
    mapped: bool,
    drop: bool,
) -> None:
    def make() -> Dataset:
        dataset = Dataset.range(n).batch(batch, drop_remainder=drop)
        return with_policy(dataset.map(lambda x: x) if mapped and n else dataset, policy)

    found = all_taken(distributed([make] * workers, replicas))
    assert [parts(steps) for steps in found] == recorded(make(), workers, replicas)
    for together in zip(*found, strict=True):  # all know the shapes on all replicas
        own = [np.shape(part) for step in together for part in step.columns[0]]
        assert all([tuple(shapes) for shapes in step.shapes] == [tuple(own)] for step in together)


@given(
    sizes=st.lists(st.integers(0, 7), min_size=2, max_size=4),
    batch=st.integers(1, 3),
    replicas=st.integers(1, 2),
)
@settings(max_examples=10, deadline=None)
def test_workers_with_own_datasets_go_on_until_nobody_has_data(
    sizes: list[int], batch: int, replicas: int
) -> None:
    def make(worker: int) -> Make:
        return lambda: Dataset.range(100 * worker, 100 * worker + sizes[worker]).batch(batch)

    found = all_taken(from_functions([make(n) for n in range(len(sizes))], replicas))
    most = max(-(-size // batch) for size in sizes)
    for worker, steps in enumerate(found):
        assert len(steps) == -(-most // replicas)
        own = [x for step in parts(steps) for part in step for x in part]
        assert own == list(range(100 * worker, 100 * worker + sizes[worker]))


def test_equal_plans_over_arrays_need_no_agreement() -> None:
    def plain() -> Dataset:
        return Dataset.range(20).shuffle(20).repeat(2).batch(8)

    steps = distributed([plain, plain])
    assert not any(isinstance(each, AgreedBatches) for each in steps)
    mapped = distributed([lambda: plain().map(lambda x: x)] * 2)
    assert all(isinstance(each, AgreedBatches) for each in mapped)


def test_workers_of_other_lengths_agree_at_each_step() -> None:
    makes: list[Make] = [lambda: Dataset.range(8).batch(4), lambda: Dataset.range(12).batch(4)]
    first, second = all_taken(distributed(makes))
    assert parts(first) == [[[0, 1]], [[4, 5]], [[]]]
    assert parts(second) == [[[2, 3]], [[6, 7]], [[10, 11]]]


def test_a_shuffle_without_a_seed_takes_the_chiefs() -> None:
    makes: list[Make] = [lambda: Dataset.range(64).shuffle(64).batch(8)] * 2
    steps = distributed(makes)
    for _ in range(2):
        first, second = all_taken(steps)
        examples = [x for step in (*parts(first), *parts(second)) for part in step for x in part]
        assert sorted(examples) == list(range(64))
        assert examples != sorted(examples)


def test_a_seed_that_the_user_gave_stays() -> None:
    def make(seed: int) -> Make:
        dataset = Dataset.range(9).shuffle(9, seed=seed).batch(2)
        return lambda: with_policy(dataset, AutoShardPolicy.OFF)

    found = all_taken(distributed([make(3), make(4)]))
    orders = [[x for step in parts(steps) for x in step[0]] for steps in found]
    assert orders == [[int(x) for x in Dataset.range(9).shuffle(9, seed=s)] for s in (3, 4)]


def test_components_that_differ_between_workers_are_refused() -> None:
    ints, floats = Dataset.range(4).batch(2), Dataset.from_tensor_slices([0.0, 1.0]).batch(2)
    for found in all_taken(from_functions([lambda: ints, lambda: floats])):
        assert isinstance(found, ValueShapeError)
        assert "worker 1" in str(found)
    pairs = Dataset.zip((ints, ints))
    for found in all_taken(from_functions([lambda: ints, lambda: pairs])):
        assert isinstance(found, StructureError)


def test_worker_without_data_gets_empty_batches_of_the_structure() -> None:
    def make(size: int) -> Make:
        rows = {"x": np.ones((size, 3), np.float32), "y": np.arange(size)}
        return lambda: Dataset.from_tensor_slices(rows).batch(2)

    _, second = all_taken(from_functions([make(3), make(0)]))
    assert [[np.shape(parts[0]) for parts in step.columns] for step in second] == [
        [(0, 3), (0,)],
        [(0, 3), (0,)],
    ]
    assert second[0].shapes == [((2, 3), (0, 3)), ((2,), (0,))]
    assert second[0].sizes == [0]
    assert not second[0].complete


def test_strings_stay_strings() -> None:
    def make(size: int) -> Make:
        return lambda: Dataset.from_tensor_slices([b"a", b"b", b"c"][:size]).batch(2)

    first, second = all_taken(from_functions([make(3), make(2)]))
    assert parts(first) == [[[b"a", b"b"]], [[b"c"]]]
    assert parts(second) == [[[b"a", b"b"]], [[]]]


def test_the_length_is_that_of_the_worker_with_the_most_data() -> None:
    def make(size: int) -> Make:
        return lambda: Dataset.range(size).batch(2)

    assert [len(steps) for steps in from_functions([make(3), make(9)])] == [5, 5]
    unknown = [make(3), lambda: make(9)().filter(lambda x: x >= 0)]
    with pytest.raises(CardinalityError, match="does not know its own"):
        len(from_functions(unknown)[0])


def test_any_number_of_workers_restores_a_global_position() -> None:
    make: Make = lambda: Dataset.range(24).shuffle(24, seed=5).batch(8)  # noqa: E731
    readers = [steps.open() for steps in distributed([make] * 2)]
    on_all([reader.__next__ for reader in readers])
    state = readers[1].get_state()
    assert state == readers[0].get_state()
    later = [steps.open() for steps in distributed([make] * 4)]
    for reader in later:
        reader.set_state(state)
    found: list[Any] = on_all([reader.__next__ for reader in later])
    examples = [x for step in found for x in parts([step])[0][0]]
    assert examples == [int(x) for x in list(Dataset.range(24).shuffle(24, seed=5))[8:16]]


def test_agreement_leaves_at_most_one_message_of_each_worker() -> None:
    store = Store()
    make: Make = lambda: Dataset.range(40).map(lambda x: x).batch(4)  # noqa: E731
    all_taken(distributed([make] * 2, store=store))
    assert sum(key.startswith("input/") for key in store.texts) <= 2


def waiting(timeout: float | None = None) -> tuple[Any, Any]:
    """The first of two workers, and its reader, which waits for the other one."""
    member = groups(2)[0]
    member.timeout = timeout
    one = distribute.replica_steps([Dataset.range(4).batch(2)], 1, fills=True)
    return member, AgreedBatches(one, member, 0, 1, [2, 2], endless=False).open()


def test_a_lost_worker_ends_the_wait_of_the_others() -> None:
    member, reader = waiting()
    as_threads(member).failure = WorkerError("worker 1", "node-7", "It was killed.")
    with pytest.raises(WorkerError, match="worker 1 on node-7: It was killed"):
        next(reader)


def test_a_late_worker_is_named_when_the_limit_is_over() -> None:
    _, reader = waiting(timeout=0.3)
    for _ in range(2):  # and again: no later round can follow
        with pytest.raises(WorkerError, match=r"worker 1 on host: It did not come to .batch 0"):
            next(reader)


def test_a_worker_whose_program_has_ended_is_not_waited_for() -> None:
    member, reader = waiting()
    as_threads(member).left = {member.workers[1]}
    with pytest.raises(WorkerError, match="worker 1 on host: Its program has ended"):
        next(reader)


def test_closing_ends_the_wait_of_another_thread() -> None:
    _, reader = waiting()
    found = on_all([lambda: next(reader), reader.interrupt])
    assert isinstance(found[0], StopIteration)

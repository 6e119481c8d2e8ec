"""Several threads use one thing at once: each call counts, or is refused with the remedy."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.data import Dataset
from distlab.errors import DistlabError
from tests.misuse.world import World, has_remedy
from tests.patience import LIMIT_SECONDS

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

Call: TypeAlias = Callable[[], object]

THREADS: Final = 3
TIMES: Final = 20
EAGERLY: Final = dl.RunOptions(run_eagerly=True)


class Shared(NamedTuple):
    """One thing that several threads use.

    Attributes:
      calls: What the threads call, all at once; each by a thread of its own.
      found: Returns what is left when all are done.
      right: What that must be.
      refused: How many of the calls raise an error of distlab.
    """

    calls: list[Call]
    found: Callable[[], object]
    right: object
    refused: int = 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def _many_switches() -> Iterator[None]:
    """Python changes threads 500 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(calls: list[Call]) -> list[object]:
    """Returns what calls return, or raise, that are made at once by a thread each."""
    outcomes: list[object] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def work(number: int) -> None:
        start.wait(LIMIT_SECONDS)
        try:
            outcomes[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
            outcomes[number] = error

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    return outcomes


def often(call: Call, times: int = TIMES) -> Call:
    """Returns a function that calls another one many times."""

    def repeat() -> None:
        for _ in range(times):
            call()

    return repeat


def taken(iterator: Iterator[Any], into: list[Any]) -> Call:
    """Returns a function that moves all elements of an iterator into a list."""
    return lambda: into.extend(iterator)


def _copies(variable: dl.Variable) -> list[Any]:
    return [np.asarray(copy.value()).tolist() for copy in variable.values]


# ---- variables and metrics


def _assignments(w: World) -> Shared:
    add = often(lambda: w.weights.assign_add(jnp.ones(2)))
    right = [[1.0 + THREADS * TIMES, 2.0 + THREADS * TIMES]] * 4
    return Shared([add] * THREADS, lambda: _copies(w.weights), right)


def _steps(w: World) -> Shared:
    step = often(lambda: w.strategy.run(lambda: w.weights.assign_add(jnp.ones(2)).value()))
    right = [[1.0 + THREADS * TIMES, 2.0 + THREADS * TIMES]] * 4
    return Shared([step] * THREADS, lambda: _copies(w.weights), right)


def _eager_steps(w: World) -> Shared:
    def step() -> None:
        w.own.assign_add(1.0)

    run = often(lambda: w.strategy.run(step, options=EAGERLY), 8)
    return Shared([run] * THREADS, lambda: _copies(w.own), [THREADS * 8.0] * 4)


def _a_metric(w: World) -> Shared:
    with w.strategy.scope():
        mean = dl.metrics.Mean()

    def step() -> None:
        mean.update_state(jnp.ones(1))

    calls = [
        often(lambda: mean.update_state(jnp.array([3.0, 3.0]))),
        often(lambda: w.strategy.run(step)),
    ]
    total = [6.0 * TIMES + 4.0 * TIMES, 2 * TIMES + 4 * TIMES]

    def found() -> list[float]:
        return sorted(float(variable.read_value()) for variable in mean.variables)

    return Shared(calls, found, sorted(total))


# ---- input


def _a_distributed_iterator(w: World) -> Shared:
    iterator = iter(w.strategy.experimental_distribute_dataset(Dataset.range(240).batch(4)))
    got: list[Any] = []

    def found() -> list[int]:
        return sorted(int(part[0]) for batch in got for part in batch.values)

    return Shared([taken(iterator, got)] * THREADS, found, list(range(240)))


def _an_iterator(_: World) -> Shared:
    dataset = Dataset.range(600).map(lambda x: x + 1).shuffle(40).batch(2).prefetch(2)
    iterator, got = iter(dataset), []  # type: ignore[var-annotated]

    def found() -> list[int]:
        return sorted(int(x) for batch in got for x in batch)

    return Shared([taken(iterator, got)] * THREADS, found, list(range(1, 601)))


# ---- files


def _a_writer(w: World) -> Shared:
    path = w.folder / "records"
    writer = dl.io.TFRecordWriter(path)

    def found() -> list[int]:
        writer.close()
        return sorted({len(record) for record in dl.data.TFRecordDataset(path)})

    calls = [often(partial(writer.write, b"x" * n)) for n in (10, 1_000)]
    return Shared([*calls, often(writer.flush)], found, [10, 1_000])


def _a_checkpoint_manager(w: World) -> Shared:
    checkpoint = dl.train.Checkpoint(weights=w.weights)
    manager = dl.train.CheckpointManager(checkpoint, w.folder, max_to_keep=2)

    def found() -> list[str]:
        return [Path(path).name for path in manager.checkpoints]

    return Shared([often(manager.save, 2)] * THREADS, found, ["ckpt-5", "ckpt-6"])


def _a_checkpoint_that_is_saved_and_restored(w: World) -> Shared:
    checkpoint = dl.train.Checkpoint(weights=w.weights)
    path = checkpoint.save(w.folder / "ckpt")
    calls = [
        often(lambda: checkpoint.write(w.folder / "again"), 2),
        often(lambda: checkpoint.restore(path), 2),
        often(lambda: w.weights.assign([1.0, 2.0])),
    ]
    return Shared(calls, lambda: _copies(w.weights), [[1.0, 2.0]] * 4)


# ---- recordings


def _a_recording(w: World) -> Shared:
    recording = dl.record(w.folder / "run")

    def log(name: str) -> Call:
        return often(lambda: recording.log(1, **{name: 1.0}))

    def found() -> list[str]:
        recording.close()
        with dl.Run.open(w.folder / "run") as run:
            values = run.to_pandas("metric")["values"]
            return sorted(name for value in values for name in value)

    return Shared([log("a"), log("b"), log("a")], found, ["a"] * 2 * TIMES + ["b"] * TIMES)


def _recordings_of_one_folder(w: World) -> Shared:
    recordings: list[Any] = []

    def found() -> object:
        (recording,) = recordings
        recording.close()
        with dl.Run.open(w.folder / "run") as run:
            return run.summary()["status"]

    def start() -> None:
        recordings.append(dl.record(w.folder / "run"))

    return Shared([start] * THREADS, found, "finished", refused=THREADS - 1)


def _a_run_that_is_read_and_exported(w: World) -> Shared:
    with dl.record(w.folder / "run") as recording:
        for step in range(TIMES):
            recording.log(step, loss=1.0)
    run = dl.Run.open(w.folder / "run")
    counted: list[int] = []
    trace = w.folder / "trace.json"

    def found() -> object:
        run.close()
        return set(counted), trace.stat().st_size > 0, len(list((w.folder / "tb").iterdir()))

    calls = [
        often(lambda: counted.append(sum(1 for _ in run.events("metric"))), 3),
        lambda: run.export(trace, overwrite=True),
        lambda: run.export(trace, overwrite=True),
        lambda: run.to_tensorboard(w.folder / "tb"),
        lambda: run.to_tensorboard(w.folder / "tb"),
        often(run.summary, 3),
    ]
    return Shared(calls, found, ({TIMES}, True, 2))


# ---- strategies, contexts, clusters


def _strategies_with_collectives(_: World) -> Shared:
    def sums() -> float:
        strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])
        ones = strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", jnp.ones(8)))
        return float(ones.values[3][0])

    outcomes: list[float] = []
    return Shared(
        [often(lambda: outcomes.append(sums()), 3)] * THREADS, lambda: outcomes, [4.0] * 9
    )


def _a_coordinator(_: World) -> Shared:
    cluster = dl.ClusterSpec({"worker": ["threads-a:1", "threads-b:1"], "ps": ["threads-c:1"]})
    tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
    servers = [dl.Server(cluster, job_name=job, task_index=index) for job, index in tasks]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
    with coordinator.strategy.scope():
        total = dl.Variable(0.0)

    def work() -> None:
        for _ in range(TIMES):
            coordinator.schedule(lambda: total.assign_add(1.0).numpy())
        coordinator.join()

    def found() -> float:
        for server in servers:
            server.stop()
        return float(total)

    return Shared([work] * THREADS, found, float(THREADS * TIMES))


def _a_controlled_loop(_: World) -> Shared:
    loop, got = dl.controlled(iter(range(100))), []  # type: ignore[var-annotated]
    return Shared([lambda: got.extend(loop)] * THREADS, lambda: sorted(got), list(range(100)))


SHARED: Final[dict[str, Callable[[World], Shared]]] = {
    function.__name__.strip("_"): function
    for function in (
        _assignments,
        _steps,
        _eager_steps,
        _a_metric,
        _a_distributed_iterator,
        _an_iterator,
        _a_writer,
        _a_checkpoint_manager,
        _a_checkpoint_that_is_saved_and_restored,
        _a_recording,
        _recordings_of_one_folder,
        _a_run_that_is_read_and_exported,
        _strategies_with_collectives,
        _a_coordinator,
        _a_controlled_loop,
    )
}


@pytest.mark.parametrize("name", SHARED)
def test_threads_that_share(world: World, name: str) -> None:
    shared = SHARED[name](world)
    outcomes = together(shared.calls)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(error, DistlabError) and has_remedy(str(error)) for error in errors)
    assert len(errors) == shared.refused, errors
    assert shared.found() == shared.right

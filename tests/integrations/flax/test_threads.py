"""Steps of several threads on one Flax NNX object: none of their changes is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import distlab as dl
from distlab.step.arguments import in_use
from tests.devices.programs import finish
from tests.devices.test_endings import BEGIN, FORKED
from tests.patience import LIMIT_SECONDS

SPEC = dl.ClusterSpec({"worker": ["flax:0", "flax:1", "flax:2"], "ps": ["flax:3"]})
STEPS = 30
THREADS = 3


@pytest.fixture
def workers() -> Iterator[dl.ParameterServerStrategy]:
    servers = [
        dl.Server(SPEC, job_name=job, task_index=index)
        for job in SPEC.jobs
        for index in SPEC.task_indices(job)
    ]
    yield dl.ParameterServerStrategy(dl.cluster_resolver.SimpleClusterResolver(SPEC))
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def _no_use_is_left() -> Iterator[None]:
    yield
    assert not in_use.present


def add(total: Any) -> jax.Array:
    value: jax.Array = total[...] + 1.0
    total[...] = value
    return value


def at_once(functions: list[Callable[[], object]]) -> None:
    """Runs functions in a thread each, which begin together; raises the first error."""
    errors: list[BaseException] = []
    begin = threading.Barrier(len(functions))

    def run(function: Callable[[], object]) -> None:
        try:
            begin.wait(LIMIT_SECONDS)
            function()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_workers_in_both_modes_and_failing_steps_don_t_deadlock(
    workers: dl.ParameterServerStrategy,
) -> None:
    coordinator = dl.coordinator.ClusterCoordinator(workers)
    model, other = nnx.Param(jnp.zeros(())), nnx.Param(jnp.zeros(()))

    def both(first: Any, second: Any, fails: bool) -> None:
        add(first)
        if fails:
            raise FloatingPointError
        add(second)

    def closure(number: int) -> None:
        pair = (model, other) if number % 2 else (other, model)
        options = dl.RunOptions(run_eagerly=number % 3 == 0)
        fails = number % 5 == 0
        try:
            workers.run(both, args=(*pair, fails), options=options)
        except FloatingPointError:
            assert fails

    for number in range(STEPS):
        coordinator.schedule(closure, (number,))
    coordinator.join()
    wanted = sum(number % 5 != 0 for number in range(STEPS))
    assert (float(model[...]), float(other[...])) == (wanted, wanted)


def test_no_change_of_plain_threads_is_lost() -> None:
    """One strategy each, two replicas that meet in an all-reduce, objects that share a variable."""
    shared = nnx.Param(jnp.zeros(()))
    objects: list[Any] = [nnx.Dict(a=shared, own=nnx.Param(jnp.zeros(()))) for _ in range(THREADS)]
    strategies = [dl.MirroredStrategy(["CPU:0", "CPU:1"]) for _ in range(THREADS)]

    def step(model: Any) -> None:
        one = dl.get_replica_context().all_reduce("MEAN", jnp.ones(()))
        model.a[...] += one
        model.own[...] += one

    def work(number: int) -> None:
        for _ in range(STEPS):
            strategies[number].run(step, args=(objects[number],))

    at_once([lambda number=number: work(number) for number in range(THREADS)])  # type: ignore[misc]
    assert float(shared[...]) == THREADS * STEPS
    assert [float(one.own[...]) for one in objects] == [STEPS] * THREADS


def test_steps_on_different_objects_do_not_wait_for_each_other() -> None:
    """An eager step of one thread waits for the step of another one to end."""
    strategy = dl.OneDeviceStrategy("CPU:0")
    mine, others = nnx.Param(jnp.zeros(())), nnx.Param(jnp.zeros(()))
    begun, ended = threading.Event(), threading.Event()

    def waiting(total: Any) -> None:
        begun.set()
        assert ended.wait(LIMIT_SECONDS)
        add(total)

    def other() -> None:
        assert begun.wait(LIMIT_SECONDS)
        strategy.run(add, args=(others,))
        ended.set()

    eagerly = dl.RunOptions(run_eagerly=True)
    at_once([lambda: strategy.run(waiting, args=(mine,), options=eagerly), other])
    assert (float(mine[...]), float(others[...])) == (1.0, 1.0)


def test_a_step_waits_for_a_failing_eager_step_on_its_object() -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")
    total = nnx.Param(jnp.zeros(()))
    begun, go_on = threading.Event(), threading.Event()

    def failing(total: Any) -> None:
        add(total)
        begun.set()
        assert go_on.wait(LIMIT_SECONDS)
        raise FloatingPointError

    def first() -> None:
        with pytest.raises(FloatingPointError):
            strategy.run(failing, args=(total,), options=dl.RunOptions(run_eagerly=True))

    def second() -> None:
        assert begun.wait(LIMIT_SECONDS)
        threading.Timer(0.05, go_on.set).start()
        strategy.run(add, args=(total,))
        assert go_on.is_set()

    at_once([first, second])
    assert float(total[...]) == 1.0


def test_a_merge_call_may_step_on_its_steps_objects() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    total: Any = nnx.Param(jnp.zeros(()))

    def step(total: Any) -> None:
        def merged(strategy: dl.Strategy, x: Any) -> Any:
            return strategy.run(lambda x: x * 2, args=(x,))

        doubled = dl.get_replica_context().merge_call(merged, args=(jnp.ones(()),))
        total[...] += dl.get_replica_context().all_reduce("MEAN", doubled)

    for _ in range(2):
        strategy.run(step, args=(total,))
    assert float(total[...]) == 4.0


def test_a_nested_use_of_one_thread_waits_for_nothing() -> None:
    outer, inner = in_use.Use(), in_use.Use()
    outer.begin([1, 2])
    inner.begin([2, 3])
    assert list(in_use.present) == [outer, inner]
    for use in (inner, outer):
        assert in_use.present.pop(use)


INTERRUPTED = """
import random, signal, threading, time
import jax.numpy as jnp
from flax import nnx
import distlab as dl
from distlab.step.arguments import in_use
from tests.devices.programs import finish

dl.use_cpu_devices(2)
strategy = dl.MirroredStrategy()
model = nnx.List([nnx.Param(jnp.zeros(())) for _ in range(8)])

def step(model):
    for one in model:
        one[...] += 1.0

def interrupt(*_):
    raise KeyboardInterrupt

for _ in range(4):
    strategy.run(step, args=(model,))
signal.signal(signal.SIGALRM, interrupt)
moments = random.Random(0)
interrupts = 0
while interrupts < 30:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + moments.random() * 0.01)
        end = time.monotonic() + 10  # Python ignores what is raised in a finaliser
        while time.monotonic() < end:
            strategy.run(step, args=(model,))
    except KeyboardInterrupt:
        interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert not in_use.present
    other = threading.Thread(target=strategy.run, args=(step, (model,)), daemon=True)
    other.start()
    other.join(60)
    assert not other.is_alive(), "another thread waits for ever"
    values = {float(one[...]) for one in model}
    assert len(values) == 1, values
print(interrupts)
"""


def test_interrupts_leave_a_whole_model_for_other_threads() -> None:
    status, out = finish(INTERRUPTED, "-W", "error")
    assert (status, out.splitlines()[-1:]) == (0, ["30"]), out


METRICS = """
metric = dl.metrics.Mean()
metric.update_state(jnp.ones(2))
further = {
    "new metric": lambda: dl.metrics.Mean(),
    "new accuracy": lambda: dl.metrics.Accuracy(),
    "metric": lambda: metric.result(),
    "metric's update": lambda: metric.update_state(jnp.ones(2)),
    "metric's update with a number": lambda: metric.update_state(3.0),
}
"""


def test_metrics_in_a_forked_child_are_refused_with_the_remedy() -> None:
    assert finish(BEGIN + METRICS + FORKED) == (0, "400.0\n")

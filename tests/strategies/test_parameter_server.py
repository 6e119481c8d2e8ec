"""ParameterServerStrategy and its coordinator, as in TensorFlow's guide."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.coordinator import ClusterCoordinator
from distlab.errors import (
    ArgumentTypeError,
    CancelledError,
    ClusterError,
    ContextError,
    IteratorContextError,
    StructureError,
    UnsupportedError,
)
from tests.patience import wait_until

WORKERS, SERVERS, LIMIT_SECONDS = 3, 2, 60
SPEC = dl.ClusterSpec(
    {
        "worker": [f"in-process:{port}" for port in range(WORKERS)],
        "ps": [f"in-process:{port}" for port in range(10, 10 + SERVERS)],
    }
)
RESOLVER = dl.cluster_resolver.SimpleClusterResolver(SPEC, rpc_layer="grpc")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    servers = [
        dl.Server(SPEC, job_name=job, task_index=index, protocol="grpc")
        for job in SPEC.jobs
        for index in SPEC.task_indices(job)
    ]
    yield
    for server in servers:
        server.stop()


@pytest.fixture
def strategy() -> dl.ParameterServerStrategy:
    return dl.ParameterServerStrategy(RESOLVER)


@pytest.fixture
def coordinator(strategy: dl.ParameterServerStrategy) -> ClusterCoordinator:
    return ClusterCoordinator(strategy, stall_seconds=LIMIT_SECONDS)


def device_of(array: jax.Array) -> str:
    (device,) = array.devices()
    return f"CPU:{device.id}"


def test_variables_are_dealt_out_to_the_parameter_servers(
    strategy: dl.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        variables = [dl.Variable(float(n)) for n in range(4)]
    homes = [device_of(variable.value()) for variable in variables]
    assert homes == ["CPU:3", "CPU:4", "CPU:3", "CPU:4"]
    assert strategy.extended.parameter_devices == ("CPU:3", "CPU:4")
    variables[1].assign_add(2.0)
    assert device_of(variables[1].value()) == "CPU:4"
    assert float(variables[1].value()) == 3.0


@pytest.mark.slow
def test_workers_train_on_their_devices_and_lose_no_update(
    strategy: dl.ParameterServerStrategy, coordinator: ClusterCoordinator
) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 4)).astype(np.float32)
    weights = random.normal(size=(4, 1)).astype(np.float32)
    with strategy.scope():
        w, updates = dl.Variable(np.zeros((4, 1), np.float32)), dl.Variable(0)

    def dataset_fn(context: dl.InputContext) -> dl.data.Dataset:
        batch = context.get_per_replica_batch_size(32)
        return dl.data.Dataset.from_tensor_slices((x, x @ weights)).repeat().batch(batch)

    def replica_fn(x: jax.Array, y: jax.Array) -> jax.Array:
        loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w.value())
        w.assign_sub(0.1 * grad)
        updates.assign_add(1)
        return loss

    def step(iterator: Iterator[Any]) -> tuple[Any, str]:
        losses = strategy.run(replica_fn, args=next(iterator))
        return strategy.reduce("SUM", losses, axis=None), device_of(losses)

    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(dataset_fn)
        )
    )
    results = [coordinator.schedule(step, args=(batches,)) for _ in range(200)]
    coordinator.join()
    assert coordinator.done()
    losses, devices = zip(*coordinator.fetch(results), strict=True)
    assert set(devices) <= {"CPU:0", "CPU:1", "CPU:2"}
    assert losses[-1] < 1e-6 < losses[0]
    assert int(updates.numpy()) == 200
    np.testing.assert_allclose(w.numpy(), weights, atol=1e-3)


@pytest.mark.parametrize("eagerly", [False, True])
def test_assignments_of_all_workers_add_up(
    strategy: dl.ParameterServerStrategy, coordinator: ClusterCoordinator, eagerly: bool
) -> None:
    with strategy.scope():
        total = dl.Variable(0.0)
    options = dl.RunOptions(run_eagerly=eagerly)

    def add() -> jax.Array:
        return total.assign_add(jnp.float32(1.0)).value()

    def in_run() -> None:
        strategy.run(add, options=options)

    def outside_of_run() -> None:
        total.assign_add(1.0)

    for _ in range(30):
        coordinator.schedule(in_run)
        coordinator.schedule(outside_of_run)
    coordinator.join()
    assert float(total.numpy()) == 60.0


class _Busy:
    """Functions that keep workers busy until `go_on` is set."""

    def __init__(self, coordinator: ClusterCoordinator) -> None:
        self.go_on = threading.Event()
        self._coordinator = coordinator
        self._began = threading.Semaphore(0)

    def schedule(self, count: int, then: Callable[[], Any] = lambda: "went on") -> list[Any]:
        def run() -> Any:
            self._began.release()
            assert self.go_on.wait(LIMIT_SECONDS)
            return then()

        return [self._coordinator.schedule(run) for _ in range(count)]

    def wait_until_all_workers_are(self) -> None:
        for _ in range(WORKERS):
            assert self._began.acquire(timeout=LIMIT_SECONDS)


@pytest.fixture
def busy(coordinator: ClusterCoordinator) -> Iterator[_Busy]:
    workers = _Busy(coordinator)
    yield workers
    workers.go_on.set()


def _fails() -> None:
    raise FloatingPointError("loss is NaN")


def test_functions_go_on_until_an_error_is_raised_once(
    coordinator: ClusterCoordinator, busy: _Busy
) -> None:
    before = busy.schedule(WORKERS)
    failing = [coordinator.schedule(_fails) for _ in range(2)]
    after = [coordinator.schedule(abs, args=(-n,)) for n in range(8)]
    busy.go_on.set()
    assert coordinator.fetch([*before, *after]) == ["went on"] * WORKERS + [*range(8)]
    for result in failing:
        with pytest.raises(FloatingPointError, match="loss is NaN"):
            result.fetch()  # which does not count as telling
    with pytest.raises(FloatingPointError, match="loss is NaN"):
        coordinator.join()
    coordinator.join()
    assert coordinator.done()


def test_raising_an_error_cancels_waiting_functions(
    coordinator: ClusterCoordinator, busy: _Busy
) -> None:
    first = busy.schedule(WORKERS)
    coordinator.schedule(_fails)
    second = _Busy(coordinator)
    running = second.schedule(WORKERS)
    waiting = [coordinator.schedule(int) for _ in range(2)]
    busy.go_on.set()
    assert coordinator.fetch(first) == ["went on"] * WORKERS
    second.wait_until_all_workers_are()  # so the error was recorded
    cancelled: list[BaseException] = []

    def go_on_when_cancelled() -> None:
        with pytest.raises(CancelledError, match="did not run, as an earlier one raised") as raised:
            waiting[0].get()
        cancelled.append(raised.value)
        second.go_on.set()

    thread = threading.Thread(target=go_on_when_cancelled)
    thread.start()
    with pytest.raises(FloatingPointError, match="loss is NaN"):
        coordinator.schedule(int)
    thread.join(LIMIT_SECONDS)
    assert len(cancelled) == 1
    with pytest.raises(CancelledError):
        waiting[1].fetch()
    assert coordinator.fetch(running) == ["went on"] * WORKERS  # their end was waited for
    assert coordinator.schedule(abs, args=(-3,)).fetch() == 3
    assert coordinator.done()


def test_only_workers_read_the_strategys_datasets(
    strategy: dl.ParameterServerStrategy, coordinator: ClusterCoordinator
) -> None:
    batches = dl.data.Dataset.range(8).batch(4)
    for dataset in (
        strategy.experimental_distribute_dataset(batches),
        strategy.distribute_datasets_from_function(lambda _: batches),
    ):
        with pytest.raises(IteratorContextError, match=r"to ClusterCoordinator\.create_per"):
            iter(dataset)
        with pytest.raises(ValueError, match="are read by its workers"):  # TensorFlow's kind
            dataset.reduce(0, lambda total, _: total + 1)
        iterator = iter(coordinator.create_per_worker_dataset(dataset))
        assert coordinator.schedule(lambda it: next(it).tolist(), (iterator,)).fetch() == [
            *range(4)
        ]


def test_a_per_worker_iterator_is_read_on_workers_alone(
    coordinator: ClusterCoordinator,
) -> None:
    dataset = coordinator.create_per_worker_dataset(dl.data.Dataset.range(2))
    iterator: Any = iter(dataset)
    for read in (iterator.get_next, lambda: next(iterator)):
        with pytest.raises(UnsupportedError, match=r"coordinator\.schedule\(fn, args=\(iterator,"):
            read()
    assert coordinator.schedule(next, (iterator,)).fetch() == 0


def test_waiting_for_a_function_that_hangs_ends_and_names_it(
    strategy: dl.ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy, stall_seconds=0.05)
    go_on = threading.Event()

    def stuck() -> bool:
        return go_on.wait(LIMIT_SECONDS)

    result = coordinator.schedule(stuck)
    with pytest.raises(ClusterError, match=r"worker \d runs .*stuck for .*larger stall_seconds"):
        coordinator.join()
    go_on.set()
    wait_until(lambda: "ready" in repr(result))  # fetch itself would wait for 0.05 s
    assert result.fetch() is True


def test_a_coordinators_threads_end_with_it(
    strategy: dl.ParameterServerStrategy,
) -> None:
    coordinator = ClusterCoordinator(strategy)
    assert ClusterCoordinator(strategy) is coordinator
    assert coordinator.strategy is strategy
    threads = coordinator.fetch([coordinator.schedule(threading.current_thread)])
    del coordinator
    gc.collect()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def test_a_task_elsewhere_is_refused_with_a_remedy() -> None:
    spec = dl.ClusterSpec({"worker": ["in-process:0"], "ps": ["far-away:1"]})
    with pytest.raises(ClusterError, match=r"ps 0 at far-away:1 is not.*distlab\.Server"):
        dl.ParameterServerStrategy(dl.cluster_resolver.SimpleClusterResolver(spec))


def test_misuse_is_refused(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(ArgumentTypeError, match=r"needs a ClusterResolver.*NoneType"):
        dl.ParameterServerStrategy(None)
    with pytest.raises(ArgumentTypeError, match=r"ParameterServerStrategy.*MirroredStrategy"):
        ClusterCoordinator(dl.MirroredStrategy())  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="schedule needs a function, got 3"):
        coordinator.schedule(3)  # type: ignore[arg-type]
    result = coordinator.schedule(int)
    with pytest.raises(ArgumentTypeError, match=r"RemoteValue.*fetch\(\)"):
        coordinator.schedule(abs, args=(result,))
    assert coordinator.fetch({"zero": result, "other": 1}) == {"zero": 0, "other": 1}


USES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda value: value + 1,
    "as a number": float,
    "compared": lambda value: value < 1,
    "equal to a number": lambda value: value == 7,
    "as an array": np.asarray,
    "as an array of JAX": jnp.asarray,
    "formatted": lambda value: f"{value:.2f}",
}


def test_a_remote_value_used_as_its_result_names_fetch(
    coordinator: ClusterCoordinator,
) -> None:
    for use in USES.values():
        result = coordinator.schedule(lambda: 7)
        with pytest.raises(StructureError, match=r"RemoteValue.*worker runs.*Call fetch\(\) on it"):
            use(result)
        with pytest.raises(AttributeError, match=r"no 'mean'.*Call fetch\(\) on it"):
            result.mean()
        assert (result == result, result.fetch()) == (True, 7)


def test_a_function_can_ask_which_worker_runs_it(strategy: dl.ParameterServerStrategy) -> None:
    coordinator = ClusterCoordinator(strategy)
    index = dl.coordinator.experimental_get_current_worker_index
    asked: list[int] = []

    def dataset() -> dl.data.Dataset:
        asked.append(index())
        return dl.data.Dataset.from_tensors(index())

    batches = iter(coordinator.create_per_worker_dataset(dataset))

    def compiled() -> Any:
        return strategy.run(lambda: jnp.int32(index()))

    def step(own: Iterator[Any]) -> tuple[int, int, int]:
        return index(), int(next(own)), int(compiled())

    results = [coordinator.schedule(step, args=(batches,)) for _ in range(WORKERS)]
    numbers = [tuple(result.fetch()) for result in results]
    assert set(asked) <= {0, 1, 2}
    assert len(set(asked)) == len(asked)  # each worker makes its own once
    assert all(len(set(row)) == 1 and row[0] in range(WORKERS) for row in numbers)
    with pytest.raises(ContextError, match="this thread is no worker's"):
        index()

"""Functions that run as ordinary Python return the numbers of compiled ones."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import StructureError, ValueShapeError
from distlab.step.eager.rendezvous import ReplicaThread
from distlab.values.distributed import stack

REPLICAS = 3


@pytest.fixture
def eagerly() -> Iterator[None]:
    dl.run_functions_eagerly(True)
    yield
    dl.run_functions_eagerly(False)


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])


def _x(strategy: dl.Strategy) -> dl.PerReplica:
    return stack([jnp.array([1.0, 2.0]), jnp.array([3.0]), jnp.zeros(0)], strategy.mesh)


def _local(strategy: dl.Strategy, value: object) -> list[Any]:
    return [np.asarray(v).tolist() for v in strategy.experimental_local_results(value)]


def _squares(v: jax.Array) -> Any:
    return {"squares": v * v, "sum": v.sum()}


def _reduced(v: jax.Array) -> Any:
    context = dl.get_replica_context()
    return context.all_reduce("SUM", [v.sum(), v.sum() * 2]), context.all_reduce("MEAN", v.sum())


def _gathered(v: jax.Array) -> Any:
    gathered = dl.get_replica_context().all_gather(v * 2, axis=0)
    return gathered, gathered.sum() * v


def _gradients(v: jax.Array) -> Any:
    context = dl.get_replica_context()
    weights = jnp.array([1.0, 10.0, 100.0])
    return (
        jax.grad(lambda u: context.all_reduce("SUM", jnp.sum(u * u)))(v),
        jax.grad(lambda u: context.all_reduce("MEAN", jnp.sum(u * u)))(v),
        jax.grad(lambda u: jnp.sum(context.all_gather(u * u, 0) * weights))(v),
    )


def _merged(v: jax.Array) -> Any:
    def merge(strategy: dl.Strategy, total: Any, plain: float) -> Any:
        both = strategy.run(lambda u: u + plain, args=(total,))
        return {"own": both, "all": strategy.reduce("SUM", both, axis=None)}

    merged = dl.get_replica_context().merge_call(merge, args=(v.sum(), 2.0))
    return merged["own"] * 10 + merged["all"]


@pytest.mark.slow
@pytest.mark.parametrize("fn", [_squares, _reduced, _gathered, _gradients, _merged])
def test_both_ways_give_the_same_numbers(fn: Callable[..., Any]) -> None:
    s = _strategy()
    compiled = s.run(fn, args=(_x(s),))
    eager = s.run(fn, args=(_x(s),), options=dl.RunOptions(run_eagerly=True))
    leaves = [jax.tree.leaves(s.experimental_local_results(r)) for r in (compiled, eager)]
    assert len(leaves[0]) == len(leaves[1]) > 0
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_an_eager_function_runs_once_per_replica_in_order() -> None:
    s = _strategy()
    seen: list[tuple[int, float]] = []

    def fn(v: jax.Array) -> int:
        number = dl.get_replica_context().replica_id_in_sync_group
        seen.append((number, float(v.sum())))
        return number

    assert _local(s, s.run(fn, args=(_x(s),))) == [0, 1, 2]
    assert seen == [(0, 3.0), (1, 3.0), (2, 0.0)]


@pytest.mark.usefixtures("eagerly")
def test_variables_are_read_and_assigned_on_each_replica() -> None:
    s = _strategy()
    with s.scope():
        total = dl.Variable(1.0, aggregation=dl.VariableAggregation.SUM)
        own = dl.Variable(0.0)
    plain = dl.Variable(100.0)

    def fn(v: jax.Array) -> Any:
        total.assign_add(v.sum())
        own.assign(v.sum())
        plain.assign_add(v.sum())
        return total + 0.0

    assert _local(s, s.run(fn, args=(_x(s),))) == [7.0] * 3
    assert _local(s, own) == [3.0, 3.0, 0.0]
    assert float(plain) == 106.0


def test_a_plain_variable_is_assigned_alike_in_a_compiled_step() -> None:
    s = _strategy()
    plain = dl.Variable(100.0)
    s.run(lambda v: plain.assign_add(v.sum()), args=(_x(s),))
    assert float(plain) == 106.0
    s.run(lambda v: plain.assign(v.sum() + 5), args=(_x(s),))
    assert float(plain) == 5.0  # the last replica's


@pytest.mark.usefixtures("eagerly")
def test_a_replica_that_raises_ends_the_others_cleanly() -> None:
    s = _strategy()

    def fn(v: jax.Array) -> Any:
        if dl.get_replica_context().replica_id_in_sync_group == 1:
            raise KeyError("replica 1")
        return dl.get_replica_context().all_reduce("SUM", v.sum())

    with pytest.raises(KeyError, match="replica 1"):
        s.run(fn, args=(_x(s),))
    assert not [t for t in threading.enumerate() if t.name.startswith("distlab replica")]
    assert not dl.has_strategy()
    assert _local(s, s.run(lambda v: v.sum(), args=(_x(s),))) == [3.0, 3.0, 0.0]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_an_interrupt_undoes_later_assignments_of_a_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with s.scope():
        v = dl.Variable(jnp.zeros(2))
    unwinding = threading.Event()
    main = threading.get_ident()
    leave = ReplicaThread._leave

    def leave_and_tell(replica: ReplicaThread) -> None:
        unwinding.set()
        leave(replica)

    monkeypatch.setattr(ReplicaThread, "_leave", leave_and_tell)

    def step() -> None:
        v.assign_add(jnp.ones(2))
        for _ in range(15):  # one just before the main thread waits comes to nothing by itself
            signal.pthread_kill(main, signal.SIGINT)
            if unwinding.wait(2):
                break
        assert unwinding.is_set()
        v.assign_add(jnp.ones(2))

    with pytest.raises(KeyboardInterrupt):
        s.run(step)
    assert [copy.numpy().tolist() for copy in v.values] == [[0, 0], [0, 0]]
    assert not [t for t in threading.enumerate() if t.name.startswith("distlab replica")]


@pytest.mark.usefixtures("eagerly")
def test_after_two_interrupts_a_replica_assigns_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with s.scope():
        v = dl.Variable(jnp.zeros(2))
    unwinding, over = threading.Event(), threading.Event()
    replicas: list[threading.Thread] = []
    main = threading.get_ident()

    def interrupted(_: ReplicaThread) -> None:
        unwinding.set()
        raise KeyboardInterrupt

    def step() -> None:
        replicas.append(threading.current_thread())
        v.assign_add(jnp.ones(2))
        for _ in range(15):  # one just before the main thread waits comes to nothing by itself
            signal.pthread_kill(main, signal.SIGINT)
            if unwinding.wait(2):
                break
        assert over.wait(60)
        v.assign_add(jnp.ones(2))

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaThread, "_join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.run(step)
    over.set()
    for replica in replicas:
        replica.join(60)
    assert [copy.numpy().tolist() for copy in v.values] == [[0, 0], [0, 0]]


def test_an_interrupt_at_a_threads_start_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        """Raises what Python's wait for a thread makes of an interrupt now and then."""
        start(thread)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("release unlocked lock")  # noqa: B904 - as Python raises it

    eagerly = dl.RunOptions(run_eagerly=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            strategy.run(lambda: 1, options=eagerly)
    assert not [t for t in threading.enumerate() if t.name.startswith("distlab replica")]
    assert strategy.run(lambda: 1, options=eagerly) == 1


@pytest.mark.usefixtures("eagerly")
def test_wrong_values_are_refused_as_in_a_compiled_step() -> None:
    s = _strategy()
    context = dl.get_replica_context
    with pytest.raises(ValueShapeError, match="same shapes"):
        s.run(lambda v: context().all_reduce("SUM", v), args=(_x(s),))
    with pytest.raises(StructureError, match="same structure"):
        s.run(lambda v: v if v.shape[0] else None, args=(_x(s),))
    with pytest.raises(ValueShapeError, match=r"jax\.jit of .*needs the same shapes"):
        s.run(jax.jit(lambda u: context().all_reduce("SUM", u.sum())), args=(_x(s),))


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("aggregation", "total"), [("MEAN", 2.0), ("ONLY_FIRST_REPLICA", 1.0)])
def test_python_numbers_that_differ_are_aggregated(aggregation: str, total: float) -> None:
    """Equal ones are taken as they are."""
    s = _strategy()
    with s.scope():
        v = dl.Variable(1.0, aggregation=dl.VariableAggregation[aggregation])
    s.run(lambda: v.assign_add(int(dl.get_replica_context().replica_id_in_sync_group)))
    assert _local(s, v) == [total] * 3
    s.run(lambda: v.assign(0.1))
    assert _local(s, v) == [np.float32(0.1)] * 3


def test_a_class_made_for_each_replica_is_named(eagerly: None) -> None:
    def step() -> Any:
        class Out(NamedTuple):
            loss: float

        return Out(1.0)

    with pytest.raises(StructureError, match=r"another class.*defined outside of the function"):
        _strategy().run(step)

"""Small programs with one fault each, and as many without any.

Each is a real run on CPU devices, some tens of steps long. `cause` and `subject`
are those that advice has to name; both are empty for a clean one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import NotFiniteWarning, RecompilationWarning
from distlab.events import Capture, sink
from distlab.recording import RingRecorder

FLOAT = np.dtype("float32")


@dataclass(frozen=True)
class Program:
    """A program and what is wrong with it."""

    name: str
    run: Callable[[dl.recording.Recording], None]
    cause: str = ""
    subject: str = ""


def mirrored(replicas: int, **options: Any) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], **options)


def filled(strategy: dl.Strategy, shape: tuple[int, ...]) -> Any:
    """A per-replica value of equal arrays."""
    return strategy.experimental_distribute_values_from_function(
        lambda _: jnp.full(shape, 0.01, jnp.float32)
    )


def busy(x: Any, rounds: Any) -> Any:
    """Keeps a device busy: so many products of a 64 x 64 matrix."""
    square = jnp.full((64, 64), 0.01) + jnp.sum(x) * 0
    return jax.lax.fori_loop(0, rounds, lambda _, a: jnp.tanh(a @ a), square)


def for_seconds(seconds: float, least: int) -> Iterator[int]:
    """Counts steps for some time, and at least so many."""
    end = time.monotonic() + seconds
    number = 0
    while number < least or time.monotonic() < end:
        yield number
        number += 1


def is_profiled(strategy: dl.Strategy) -> bool:
    """Returns whether the recorder has taken a profile of the strategy's steps."""
    recorder = sink.recorder()
    assert isinstance(recorder, RingRecorder)
    events = recorder.ring.since(0, 1 << 30).events
    return any(isinstance(one, Capture) and one.strategy == strategy.number for one in events)


# --- faults ------------------------------------------------------------------------------------


def straggler(replicas: int, slow: int, rounds: int, times: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)

        def step(x: Any) -> Any:
            context = dl.get_replica_context()
            mine = context.replica_id_in_sync_group == slow
            y = busy(x, jnp.where(mine, times * rounds, rounds)).sum()
            return x + context.all_reduce("MEAN", y)

        x = filled(strategy, (4,))
        for _number in for_seconds(0.8, 25):
            x = strategy.run(step, (x,))
        end = time.monotonic() + 30
        while not is_profiled(strategy) and time.monotonic() < end:  # on a busy machine
            x = strategy.run(step, (x,))
        jax.block_until_ready(x)

    name = f"straggler-{slow}-of-{replicas}-{times}x"
    return Program(name, run, "slow_replica", f"replica {slow}")


def slow_source(replicas: int, seconds: float) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        rows = np.zeros((replicas * 2, 16), np.float32)

        def generate() -> Iterator[np.ndarray]:
            for _ in range(25):
                time.sleep(seconds)
                yield rows

        spec = dl.data.TensorSpec(rows.shape, FLOAT)
        dataset = dl.data.Dataset.from_generator(generate, output_signature=spec)
        for batch in strategy.experimental_distribute_dataset(dataset):
            strategy.run(jnp.sum, (batch,))

    return Program(f"input-{replicas}-{seconds * 1e3:.0f}ms", run, "input_bound", "dataset")


def slow_python(replicas: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (16,))
        for _number in for_seconds(1.5, 60):
            x = strategy.run(lambda v: v * 0.5, (x,))
            time.sleep(0.01)

    return Program(f"own-python-{replicas}", run, "host_bound", "loop")


def diverging(replicas: int) -> Program:
    def run(recording: dl.recording.Recording) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, ())
        for _number in range(12):
            x = strategy.run(lambda v: v * 1e9, (x,))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotFiniteWarning)
                recording.log(loss=strategy.reduce("MEAN", x, axis=None))

    return Program(f"loss-overflows-{replicas}", run, "not_finite", "metric loss")


def changing_shapes(replicas: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)

        def train(tokens: Any, weights: Any) -> Any:
            return (tokens * 2).sum() + weights.sum()

        fixed = filled(strategy, (4,))
        for number in range(12):
            strategy.run(train, (filled(strategy, (4 + number,)), fixed))

    return Program(f"shapes-of-tokens-{replicas}", run, "recompilation", "argument tokens")


def new_function(replicas: int) -> Program:
    def multiply(numbers: Iterable[int]) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (4,))
        for number in numbers:
            strategy.run(lambda v, n=number: v * n, (x,))

    def run(_: Any) -> None:
        with pytest.warns(RecompilationWarning, match="n: 1 -> 2"):
            multiply(range(12))

    return Program(f"new-lambda-each-step-{replicas}", run, "recompilation", "function <lambda>")


def uneven(replicas: int, batch: int, subject: str) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        rows = np.zeros((batch * 12, 3), np.float32)
        dataset = dl.data.Dataset.from_tensor_slices(rows).batch(batch)

        def step(x: Any) -> Any:
            return x.sum()

        for x in strategy.experimental_distribute_dataset(dataset):
            strategy.run(step, (x,))

    return Program(f"batch-of-{batch}-on-{replicas}", run, "uneven_batch", subject)


def large_reduce(replicas: int, megabytes: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (megabytes << 18,))

        def step(value: Any) -> Any:
            return value + 1

        for _number in range(12):
            x = strategy.run(step, (x,))
            jax.block_until_ready(x)  # else the call may return before the devices combine
            jax.block_until_ready(strategy.reduce("SUM", x, axis=None))

    return Program(f"reduce-of-{megabytes}MB-{replicas}", run, "large_reduction", "reduce")


def repeated(replicas: int, op: str) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (64,))

        def step(value: Any) -> Any:
            return value * 1.5

        for _number in range(15):
            x = strategy.run(step, (x,))
            strategy.reduce(op, x, axis=None)
            strategy.reduce(op, x, axis=None)

    return Program(f"reduced-twice-{op}-{replicas}", run, "repeated_reduction", "reduce")


def many(replicas: int, number: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (16,))

        def step(value: Any) -> Any:
            return value, [value.sum() * n for n in range(number)]

        for _number in range(15):
            x, metrics = strategy.run(step, (x,))
            for metric in metrics:
                strategy.reduce("MEAN", metric, axis=None)

    return Program(f"{number}-reduces-one-by-one-{replicas}", run, "many_reductions", "reduce")


def host_batches(replicas: int, kilobytes: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        images = np.zeros((kilobytes << 8,), np.float32)

        def step(images: Any) -> Any:
            return images.sum()

        for number in range(20):
            images[0] = number
            strategy.run(step, (images,))

    return Program(
        f"host-array-of-{kilobytes}kB-{replicas}", run, "host_transfer", "argument images of step"
    )


def read_back(replicas: int, kilobytes: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        with strategy.scope():
            weights = dl.Variable(jnp.zeros((kilobytes << 8,)), name="weights")

        def step() -> Any:
            weights.assign_add(jnp.ones_like(weights.value()))
            return weights.value()[0]

        for _number in range(20):
            strategy.run(step)
            weights.numpy()

    return Program(f"variable-read-back-{kilobytes}kB-{replicas}", run, "host_transfer", "weights")


def algorithm(replicas: int, ops: Any, name: str, size: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas, cross_device_ops=ops())
        x = filled(strategy, (size,))

        def step(value: Any) -> Any:
            return value + 1

        for _number in range(25):
            x = strategy.run(step, (x,))
            jax.block_until_ready(strategy.reduce("SUM", x, axis=None))

    return Program(f"{name}-{size}-{replicas}", run, "slow_algorithm", name)


def on_one_device(replicas: int, megabytes: int) -> Program:
    def run(_: Any) -> None:
        strategy = dl.experimental.CentralStorageStrategy([f"CPU:{n}" for n in range(replicas)])
        with strategy.scope():
            table = dl.Variable(jnp.zeros((megabytes << 18,)), name="table")

        def step() -> Any:
            return table.value()[0]

        for _number in range(3):
            strategy.run(step)

    return Program(f"{megabytes}MB-on-one-of-{replicas}", run, "memory_imbalance", "CPU:0")


FAULTS = [
    straggler(4, 2, rounds=20, times=15),
    slow_source(4, 0.020),
    changing_shapes(2),
    new_function(2),
    uneven(8, 10, "replicas 5 to 7"),
    large_reduce(2, 8),
    repeated(2, "SUM"),
    many(2, 5),
    host_batches(2, 64),
    read_back(2, 1024),
    algorithm(4, dl.HierarchicalCopyAllReduce, "hierarchical_copy", 4),
    on_one_device(2, 32),
    slow_python(4),
    diverging(4),
]


# --- clean -------------------------------------------------------------------------------------


def training(replicas: int) -> Program:
    """A small classifier, trained as the guides do it, which reads its loss in each step."""

    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        numbers = np.random.default_rng(0)
        features = numbers.normal(size=(256, 32)).astype(np.float32)
        labels = (features[:, 0] > 0).astype(np.int32)
        dataset = dl.data.Dataset.from_tensor_slices((features, labels)).shuffle(256).batch(32)
        with strategy.scope():
            first = dl.Variable(jnp.asarray(numbers.normal(size=(32, 64)) * 0.1, jnp.float32))
            second = dl.Variable(jnp.asarray(numbers.normal(size=(64, 2)) * 0.1, jnp.float32))

        def step(inputs: Any) -> Any:
            x, y = inputs

            def loss_of(weights: Any) -> Any:
                logits = jnp.tanh(x @ weights[0]) @ weights[1]
                chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
                return -chosen.sum() / 32

            loss, grads = jax.value_and_grad(loss_of)((first.value(), second.value()))
            grads = dl.get_replica_context().all_reduce("SUM", grads)
            first.assign_sub(0.1 * grads[0])
            second.assign_sub(0.1 * grads[1])
            return loss

        distributed = strategy.experimental_distribute_dataset(dataset)
        for _epoch in range(4):
            for inputs in distributed:
                float(strategy.reduce("SUM", strategy.run(step, (inputs,)), axis=None))

    return Program(f"training-{replicas}", run)


def balanced(replicas: int, rounds: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)

        def step(x: Any) -> Any:
            return x + dl.get_replica_context().all_reduce("MEAN", busy(x, rounds).sum())

        x = filled(strategy, (4,))
        for _number in for_seconds(0.7, 25):
            x = strategy.run(step, (x,))
        jax.block_until_ready(x)

    return Program(f"balanced-{replicas}-{rounds}", run)


def quick_source(replicas: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        rows = np.zeros((replicas * 4, 16), np.float32)
        spec = dl.data.TensorSpec(rows.shape, FLOAT)
        dataset = dl.data.Dataset.from_generator(
            lambda: (rows for _ in range(30)), output_signature=spec
        )

        def step(x: Any) -> Any:
            return busy(x, 20).sum()

        for batch in strategy.experimental_distribute_dataset(dataset):
            strategy.run(step, (batch,))

    return Program(f"quick-source-{replicas}", run)


def metrics_together(replicas: int, number: int) -> Program:
    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, (16,))

        def step(value: Any) -> Any:
            return value, {f"metric {n}": value.sum() * n for n in range(number)}

        for _number in range(20):
            x, metrics = strategy.run(step, (x,))
            strategy.reduce("MEAN", metrics, axis=None)

    return Program(f"{number}-metrics-in-one-reduce-{replicas}", run)


def two_programs(replicas: int) -> Program:
    """Training and evaluation in turns, each with a partial batch."""

    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        rows = np.zeros((replicas * 8 + 3, 8), np.float32)
        dataset = dl.data.Dataset.from_tensor_slices(rows).batch(replicas * 2)
        distributed = strategy.experimental_distribute_dataset(dataset)

        def train(x: Any) -> Any:
            return (x * 2).sum()

        def evaluate(x: Any) -> Any:
            return x.sum()

        for _epoch in range(6):
            for x in distributed:
                strategy.run(train, (x,))
            for x in distributed:
                strategy.reduce("SUM", strategy.run(evaluate, (x,)), axis=None)

    return Program(f"train-and-evaluate-{replicas}", run)


def functional(replicas: int, megabytes: int) -> Program:
    """State as arguments and results, with gradients of some size."""

    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        state = strategy.replicate(
            {"weights": jnp.zeros((megabytes << 10, 256)), "bias": jnp.zeros((256,))}
        )
        x = filled(strategy, (4, megabytes << 10))

        def step(state: Any, x: Any) -> Any:
            def loss_of(state: Any) -> Any:
                return jnp.square(x @ state["weights"] + state["bias"]).mean()

            grads = dl.get_replica_context().all_reduce("MEAN", jax.grad(loss_of)(state))
            return jax.tree.map(lambda s, g: s - 0.1 * g, state, grads)

        for _number in range(12):
            state = strategy.run(step, (state, x))
        jax.block_until_ready(state)

    return Program(f"functional-{megabytes}MB-{replicas}", run)


def training_steps_in_a_scan(replicas: int) -> Program:
    """Each round needs the sum of the one before."""

    def run(_: Any) -> None:
        strategy = mirrored(replicas)
        with strategy.scope():
            weights = dl.Variable(jnp.ones((32, 32)), name="weights")
        x = filled(strategy, (8, 4, 32))

        def one_step(_: Any, rows: Any) -> tuple[None, Any]:
            reduce = dl.get_replica_context().all_reduce
            mean = reduce("MEAN", rows.mean())  # of the examples alone, and small
            loss, grads = jax.value_and_grad(lambda w: ((rows @ w - mean) ** 2).mean())(
                weights.value()
            )
            grads = reduce("MEAN", grads)
            weights.assign_sub(0.1 * grads)
            return None, loss

        def eight_steps(rows: Any) -> Any:
            return dl.scan(one_step, None, rows)[1]

        for _number in range(12):
            strategy.run(eight_steps, (x,))

    return Program(f"training-steps-in-a-scan-{replicas}", run)


def not_finite_once(replicas: int) -> Program:
    """Logs an infinite value once, as a norm of the first gradient may be."""

    def run(recording: dl.recording.Recording) -> None:
        strategy = mirrored(replicas)
        x = filled(strategy, ())
        for number in range(12):
            x = strategy.run(lambda v: v * 0.5, (x,))
            with pytest.warns(NotFiniteWarning) if number == 3 else nullcontext():
                recording.log(norm=np.inf if number == 3 else 1.0)

    return Program(f"not-finite-once-{replicas}", run)


CLEAN = [
    training(4),
    balanced(4, 100),
    quick_source(2),
    metrics_together(8, 12),
    two_programs(4),
    functional(2, 4),
    training_steps_in_a_scan(2),
    not_finite_once(2),
]

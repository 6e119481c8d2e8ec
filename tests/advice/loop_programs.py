"""Programs whose loop is at fault, and near-twins whose loop is not.

An MLP, a CNN and a transformer, each small, trained as their users write it. A fault has the
cause and the subject that advice has to name.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl

NUMBERS = np.random.default_rng(17)
FLOAT = np.dtype("float32")

Loop = Callable[[dl.recording.Recording], None]


def mirrored(replicas: int = 2) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)])


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    dl.run_functions_eagerly(True)
    try:
        yield
    finally:
        dl.run_functions_eagerly(False)


# --- models --------------------------------------------------------------------------------------


class MLP:
    """A perceptron in variables, as in TensorFlow's guide for custom loops."""

    def __init__(self, strategy: dl.Strategy, width: int = 16) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.hidden = dl.Variable(jnp.full((8, width), 0.1), name="hidden")
            self.out = dl.Variable(jnp.full((width, 1), 0.1), name="out")

    def train_step(self, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - x[:, :1]) ** 2)

        value, grads = jax.value_and_grad(loss)((self.hidden.value(), self.out.value()))
        grads = dl.get_replica_context().all_reduce("MEAN", grads)
        self.hidden.assign_sub(0.1 * grads[0])
        self.out.assign_sub(0.1 * grads[1])
        return value


def cnn() -> tuple[Any, Callable[..., Any]]:
    """Weights of a small CNN, and its logits."""
    weights = {"kernel": jnp.full((3, 3, 1, 4), 0.1), "head": jnp.full((4, 10), 0.1)}

    def logits(weights: Any, x: Any) -> Any:
        axes = ("NHWC", "HWIO", "NHWC")
        kernel = weights["kernel"]
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes)
        return jnp.maximum(x, 0).mean(axis=(1, 2)) @ weights["head"]

    return weights, logits


def transformer() -> tuple[Any, Callable[..., Any]]:
    """Weights of one block of attention over 32 tokens, and its logits."""
    key = jax.random.key(0)
    weights = {
        "embedding": jax.random.normal(key, (32, 8)),
        "attention": jax.random.normal(key, (3, 8, 8)) * 0.1,
        "head": jax.random.normal(key, (8, 32)) * 0.1,
    }

    def logits(weights: Any, ids: Any) -> Any:
        x = weights["embedding"][ids]
        query, keys, values = x @ weights["attention"][:, None]
        scores = jax.nn.softmax(query @ keys.swapaxes(1, 2))
        return (x + scores @ values) @ weights["head"]

    return weights, logits


def fitted(model: tuple[Any, Callable[..., Any]]) -> tuple[Any, Callable[..., Any]]:
    """Returns a functional state, and the step that trains it on `(x, label)`."""
    weights, logits = model

    def step(state: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            found = jax.nn.log_softmax(logits(weights, x))
            return -(found * jax.nn.one_hot(y, found.shape[-1])).sum(axis=-1).mean()

        value, grads = jax.value_and_grad(loss)(state)
        grads = dl.get_replica_context().all_reduce("MEAN", grads)
        return jax.tree.map(lambda w, g: w - 0.05 * g, state, grads), value

    return weights, step


def own(strategy: dl.Strategy, batch: tuple[Any, Any]) -> Any:
    """Each replica's own examples."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tuple(
            part[context.replica_id_in_sync_group :: context.num_replicas_in_sync] for part in batch
        )
    )


def images(number: int, side: int = 8) -> tuple[Any, Any]:
    x = NUMBERS.normal(size=(number, side, side, 1)).astype(np.float32)
    return x, np.arange(number, dtype=np.int32) % 10


def rows(number: int) -> Any:
    return NUMBERS.normal(size=(number, 8)).astype(np.float32)


def tokens(number: int, length: int = 6) -> tuple[Any, Any]:
    x = NUMBERS.integers(0, 32, size=(number, length)).astype(np.int32)
    return x, x[:, ::-1].copy()


# --- eager mode ----------------------------------------------------------------------------------


def eager_mlp(steps: int, debugged: int | None = None) -> Loop:
    """Eager from the first step on; with `debugged` compiled again after so many."""

    def run(_: dl.recording.Recording) -> None:
        model = MLP(mirrored(2))
        data = dl.data.Dataset.from_tensor_slices(rows(8 * steps)).batch(8)
        batches = iter(model.strategy.experimental_distribute_dataset(data))
        for number, x in enumerate(batches):
            with eagerly() if debugged is None or number < debugged else contextlib.nullcontext():
                model.strategy.run(model.train_step, args=(x,))

    return run


# --- batches that hold next to nothing -----------------------------------------------------------


def by_parts(sizes: list[int], batch: int, *, whole: bool = False) -> Loop:
    """Parts of a data set, such as files, each batched alone; or joined before."""

    def run(_: dl.recording.Recording) -> None:
        model = MLP(mirrored(2))
        parts = [dl.data.Dataset.from_tensor_slices(rows(size)) for size in sizes]
        parts = parts if whole else [part.batch(batch) for part in parts]
        data = parts[0]
        for part in parts[1:]:
            data = data.concatenate(part)
        data = data.batch(batch) if whole else data
        for x in model.strategy.experimental_distribute_dataset(data):
            model.strategy.run(model.train_step, args=(x,))

    return run


def epochs_of(examples: int, batch: int, epochs: int, **options: Any) -> Loop:
    def run(_: dl.recording.Recording) -> None:
        strategy = mirrored(4)
        x, y = images(examples, side=4)
        state, step = fitted(cnn())
        state = strategy.replicate(state)
        data = dl.data.Dataset.from_tensor_slices((x, y)).shuffle(examples).batch(batch, **options)
        distributed = strategy.experimental_distribute_dataset(data)
        for _epoch in range(epochs):
            for x, y in distributed:
                state, loss = strategy.run(step, args=(state, x, y))
                jax.block_until_ready(loss)

    return run


def from_generator(pattern: Callable[[int], tuple[int, int]], steps: int) -> Loop:
    """Batches of token ids whose examples and lengths a function of the step returns."""

    def run(_: dl.recording.Recording) -> None:
        strategy = dl.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"])

        def generate() -> Iterator[Any]:
            for number in range(steps):
                yield tokens(*pattern(number))

        spec = dl.data.TensorSpec((None, None), np.dtype("int32"))
        data = dl.data.Dataset.from_generator(generate, output_signature=(spec, spec))
        weights, logits = transformer()

        def evaluate(x: Any, y: Any) -> Any:
            return (logits(weights, x).argmax(axis=-1) == y).sum()

        hits = 0
        for x, y in strategy.experimental_distribute_dataset(data):
            hits += int(strategy.reduce("SUM", strategy.run(evaluate, (x, y)), axis=None))

    return run


# --- runs that mostly compile --------------------------------------------------------------------


def trials(number: int, steps: int, *, anew: bool) -> Loop:
    """A search over learning rates; each trial makes a strategy anew, or takes the first one."""

    def run(_: dl.recording.Recording) -> None:
        first = MLP(mirrored(2))
        for _trial in range(number):
            model = MLP(mirrored(2)) if anew else first
            model.hidden.assign(jnp.full((8, 16), 0.1))
            x = model.strategy.replicate(jnp.ones((4, 8)))
            for _step in range(steps):
                model.strategy.run(model.train_step, args=(x,))

    return run


def lengths(number: int, steps: int, *, again: int = 0) -> Loop:
    """Sequences of many lengths, some steps of each; and then many steps of the first one."""

    def run(_: dl.recording.Recording) -> None:
        strategy = mirrored(2)
        state, step = fitted(transformer())
        state = strategy.replicate(state)
        for length in [*(n + 3 for n in range(number) for _ in range(steps)), *[3] * again]:
            batch = own(strategy, tokens(4, length))
            state, loss = strategy.run(step, args=(state, *batch))
            if again:
                jax.block_until_ready(loss)

    return run


def short_run(steps: int) -> Loop:
    """Trains for some steps and evaluates once."""

    def run(_: dl.recording.Recording) -> None:
        model = MLP(mirrored(2))
        data = dl.data.Dataset.from_tensor_slices(rows(8 * steps - 3)).batch(8)
        for x in model.strategy.experimental_distribute_dataset(data):
            model.strategy.run(model.train_step, args=(x,))
        for x in model.strategy.experimental_distribute_dataset(data.take(2)):
            model.strategy.run(lambda x: (x @ model.hidden.value()).sum(), args=(x,))

    return run


# --- loops whose devices wait for the program ----------------------------------------------------


def for_seconds(seconds: float, least: int = 24) -> Iterator[int]:
    """Counts steps for some time after the first one, which compiles, and at least so many."""
    yield 0
    end = time.monotonic() + seconds
    number = 1
    while number < least or time.monotonic() < end:
        yield number
        number += 1


def collected(every: int) -> Loop:
    """Collects garbage after every so many steps."""

    def run(_: dl.recording.Recording) -> None:
        model = MLP(mirrored(2))
        x = model.strategy.replicate(rows(8))
        for number in for_seconds(1.3, least=6):
            model.strategy.run(model.train_step, args=(x,))
            if number % every == every - 1:
                gc.collect()

    return run


def jitted_by_hand(*, anew: bool) -> Loop:
    """Schedules its rate with a jitted function, which it makes anew in each step or once."""

    def run(_: dl.recording.Recording) -> None:
        strategy = mirrored(4)
        state, step = fitted(cnn())
        state = strategy.replicate(state)
        batch = own(strategy, images(16, side=4))
        once = jax.jit(schedule)
        for number in for_seconds(1.3):
            state, _loss = strategy.run(step, args=(state, *batch))
            rate = jax.jit(lambda n: 1.0 * schedule(n)) if anew else once
            assert rate(float(number)) <= 1

    def schedule(n: Any) -> Any:
        return jnp.minimum(n / 100, 1.0) * jnp.cos(n / 1000)

    return run


def saved(every: int, seconds: float) -> Loop:
    """Writes a checkpoint, which takes some time, after every so many steps."""

    def run(_: dl.recording.Recording) -> None:
        strategy = dl.TPUStrategy()
        model = MLP(strategy)
        x = strategy.replicate(rows(8))
        for number in for_seconds(1.5):
            strategy.run(model.train_step, args=(x,))
            if number % every == every - 1:
                save(model)

    def save(model: MLP) -> None:
        pickle.dumps(model.hidden.numpy())
        time.sleep(seconds)

    return run


def made_by_hand(examples: int) -> Loop:
    """Makes its batches in Python, number by number."""

    def run(_: dl.recording.Recording) -> None:
        model = MLP(mirrored(2))
        for _number in for_seconds(1.3):
            x = np.array(
                [[random.random() for _column in range(8)] for _row in range(examples)], FLOAT
            )
            halves = np.split(x, 2)
            batch = model.strategy.experimental_distribute_values_from_function(
                functools.partial(half, halves)
            )
            model.strategy.run(model.train_step, args=(batch,))

    def half(halves: list[Any], context: dl.ValueContext) -> Any:
        return halves[context.replica_id_in_sync_group]

    return run


def heavy(work: int) -> Loop:
    """Reads the loss of each step as a float, which waits for busy devices."""

    def run(_: dl.recording.Recording) -> None:
        strategy = mirrored(2)

        def step(x: Any) -> Any:
            square = jnp.full((64, 64), 0.01) + x.sum() * 0
            total = jax.lax.fori_loop(0, work, lambda _, a: jnp.tanh(a @ a), square).sum()
            return dl.get_replica_context().all_reduce("MEAN", total)

        x = own(strategy, images(4))[0]
        for _number in for_seconds(1.3):
            loss = strategy.run(step, args=(x,))
            float(strategy.reduce("MEAN", loss, axis=None))
            sum(range(1000))

    return run


FAULTS: dict[str, tuple[Loop, str, str]] = {
    "eager mlp": (eager_mlp(22), "eager_mode", "function MLP.train_step"),
    "each part batched": (
        by_parts([66] * 12, 64), "nearly_empty_batches", "dataset at loop_programs.py",
    ),
    "a strategy for each trial": (
        trials(7, 6, anew=True), "mostly_compiling", "function MLP.train_step",
    ),
    "many lengths": (lengths(7, 6), "mostly_compiling", "function step"),
}  # fmt: skip
"""Names of programs to what they do, the cause and the subject."""

WAITED_FOR: dict[str, tuple[Loop, str]] = {
    "garbage in each step": (collected(1), "gc.collect()"),
    "jit in each step": (jitted_by_hand(anew=True), "assert rate(float(number)) <= 1"),
    "saved in every fifth step": (saved(5, 0.1), "time.sleep(seconds)"),
}
"""Names of programs whose devices wait for them to what they do, and the line that takes long."""

CLEAN: dict[str, Loop] = {
    "fifteen eager steps, then compiled": eager_mlp(40, debugged=15),
    "parts joined before": by_parts([66] * 12, 64, whole=True),
    "a partial last batch": epochs_of(132, 32, 4),
    "batches that grow": from_generator(lambda number: (4 if number < 12 else 32, 6), 24),
    "few long sequences": from_generator(lambda n: (32, 4) if n % 2 else (4, 32), 24),
    "one strategy for all trials": trials(9, 7, anew=False),
    "thirty steps": short_run(30),
    "garbage once": collected(100_000),
    "one jit for all steps": jitted_by_hand(anew=False),
    "small batches by hand": made_by_hand(8),
    "waits for its devices": heavy(400),
    "waits for short steps": heavy(20),
}
"""Names of near-twins to what they do."""

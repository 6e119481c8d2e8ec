"""Programs whose loop is at fault, and near-twins whose loop is not.

An MLP, a CNN and a transformer, each small, trained as their users write it. A fault has the
cause and the subject that advice has to name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl

NUMBERS = np.random.default_rng(17)

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


# --- loops whose devices wait for the program ----------------------------------------------------


def for_seconds(seconds: float, least: int = 24) -> Iterator[int]:
    """Counts steps for some time after the first one, which compiles, and at least so many."""
    yield 0
    end = time.monotonic() + seconds
    number = 1
    while number < least or time.monotonic() < end:
        yield number
        number += 1


def jitted_in_each_step(_: dl.recording.Recording) -> None:
    """Schedules its rate with a jitted function, which it makes anew in each step."""
    strategy = mirrored(4)
    state, step = fitted(cnn())
    state = strategy.replicate(state)
    batch = own(strategy, images(16, side=4))
    for number in for_seconds(1.1):
        state, _loss = strategy.run(step, args=(state, *batch))
        rate = jax.jit(lambda n: jnp.minimum(n / 100, 1.0) * jnp.cos(n / 1000))
        assert rate(float(number)) <= 1


def heavy(work: int) -> Loop:
    """Reads the loss of each step as a float, which waits for busy devices."""

    def run(_: dl.recording.Recording) -> None:
        strategy = mirrored(2)

        def step(x: Any) -> Any:
            square = jnp.full((64, 64), 0.01) + x.sum() * 0
            total = jax.lax.fori_loop(0, work, lambda _, a: jnp.tanh(a @ a), square).sum()
            return dl.get_replica_context().all_reduce("MEAN", total)

        x = own(strategy, images(4))[0]
        for _number in for_seconds(1.1):
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
}  # fmt: skip
"""Names of programs to what they do, the cause and the subject."""

CLEAN: dict[str, Loop] = {
    "fifteen eager steps, then compiled": eager_mlp(40, debugged=15),
    "a partial last batch": epochs_of(132, 32, 4),
    "one strategy for all trials": trials(9, 7, anew=False),
    "waits for short steps": heavy(20),
}
"""Names of near-twins to what they do."""

"""Ctrl-C at random moments of steps of many kinds: nothing is lost, torn or left locked.

python -m tests.soak.interrupts KIND COUNT SEED
"""

from __future__ import annotations

import faulthandler
import itertools
import random
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from distlab.errors import RecompilationWarning

MOST_SECONDS: Final = 60.0
"""One step, and the check after it, must be done by then."""

ROOT: Final = Path(__file__).parent.parent.parent
REPLICAS: Final = 3
SIZE: Final = 1 << 12


class Loop:
    """A loop of one kind: `step(n)` takes step `n`, and `taken()` checks what was taken."""

    longest = 0.02
    """Interrupts come at most so many seconds after a loop begins."""

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy = strategy
        with strategy.scope():
            mean = dl.VariableAggregation.MEAN
            self.variables = [
                dl.Variable(jnp.zeros(SIZE), aggregation=mean),
                dl.Variable(0.0, aggregation=dl.VariableAggregation.ONLY_FIRST_REPLICA),
                dl.Variable(
                    jnp.zeros(3),
                    synchronization=dl.VariableSynchronization.ON_READ,
                    aggregation=mean,
                ),
            ]
        self.x = strategy.replicate(jnp.ones(3))

    def step(self, number: int) -> None:
        """Takes a step that adds 1 to all variables."""
        self.run()

    def run(self, **options: Any) -> Any:
        """Runs the function that adds 1 to all variables."""
        return self.strategy.run(self._add, args=(self.x,), **options)

    def _add(self, x: jax.Array) -> jax.Array:
        for variable in self.variables:
            variable.assign_add(jnp.ones(variable.shape))
        total = dl.get_replica_context().all_reduce("SUM", x)
        assert total.shape == (3,)
        return total

    def taken(self) -> int:
        """Returns how many steps were taken: all variables, in all copies, took part in each."""
        arrays = [copy.value() for variable in self.variables for copy in variable.values]
        values = {float(number) for array in arrays for number in np.unique(array)}
        if len(values) != 1:
            raise AssertionError(f"variables have {sorted(values)}")
        return int(values.pop())


class Eager(Loop):
    """Functions that run as ordinary Python."""

    longest = 0.05

    def step(self, number: int) -> None:
        """Takes a step eagerly."""
        self.run(options=dl.RunOptions(run_eagerly=True))


class Reduce(Loop):
    """Reductions, which must give the same numbers after an interrupt."""

    def step(self, number: int) -> None:
        """Takes a step and combines its results in three ways."""
        out = self.run()
        require(self.strategy.reduce("SUM", out, axis=None), REPLICAS**2)
        require(self.strategy.reduce("MEAN", out, axis=0), REPLICAS)
        require(self.strategy.gather(out, axis=0), REPLICAS)
        (total,) = self.strategy.extended.batch_reduce_to("SUM", [(out, self.variables[0])])
        require(total.values[1], REPLICAS**2)


class Read(Loop):
    """Reads and assignments of variables between steps, whose memory the next one may take."""

    def step(self, number: int) -> None:
        """Reads variables, and lets the next step miss JAX's fast path."""
        first, count, _ = self.variables
        before = first.value()
        kept = float(before[0])
        self.run()
        require(before, kept)
        if number % 7 == 0:
            jax.clear_caches()
        if number % 3 == 0:
            with_same = first.value() * 1.0
            first.assign(with_same)
        float(count)


class Compile(Loop):
    """Functions that are traced and compiled anew."""

    longest = 1.0

    def step(self, number: int) -> None:
        """Takes a step of a new function."""
        scale = number + 2.0

        def step(x: jax.Array) -> jax.Array:
            self._add(x)
            return jnp.sin(x) * scale - jnp.sin(x) * scale + scale

        out = self.strategy.run(step, args=(self.x,))
        require(self.strategy.reduce("SUM", out, axis=None), REPLICAS * scale)


class Ragged(Loop):
    """Steps whose parts have different shapes."""

    longest = 0.1

    def __init__(self, strategy: dl.Strategy) -> None:
        super().__init__(strategy)
        self.parts = strategy.experimental_distribute_values_from_function(
            lambda context: np.ones(1 + context.replica_id_in_sync_group, np.float32)
        )

    def step(self, number: int) -> None:
        """Takes a step whose parts have 1, 2 and 3 rows."""
        out = self.strategy.run(self._uneven, args=(self.parts,))
        require(self.strategy.reduce("SUM", out, axis=None), 6)

    def _uneven(self, x: jax.Array) -> jax.Array:
        self._add(jnp.ones(3))
        return x.sum()


class Input(Loop):
    """Batches of a dataset: each of them once, in order."""

    longest = 0.05

    def __init__(self, strategy: dl.Strategy) -> None:
        super().__init__(strategy)
        plain = dl.data.Dataset.range(1 << 40)
        mapped = plain.map(lambda x: x + 0).batch(2 * REPLICAS - 1).map(lambda x: x * 1)
        options = dl.InputOptions(experimental_per_replica_buffer_size=3)
        self.iterators = [
            iter(strategy.experimental_distribute_dataset(plain.batch(2 * REPLICAS))),
            iter(strategy.experimental_distribute_dataset(mapped, options)),
        ]
        self.got: list[list[Any]] = [[] for _ in self.iterators]
        self.next = [0] * len(self.iterators)

    def step(self, number: int) -> None:
        """Reads a batch of each; C code puts it away, so that no interrupt comes between."""
        for got, iterator in zip(self.got, self.iterators, strict=True):
            got.extend(itertools.islice(iterator, 1))
        self.run()

    def taken(self) -> int:
        """Checks the batches that were read since the last look."""
        for index, got in enumerate(self.got):
            for batch in got:
                numbers = np.concatenate(self.strategy.experimental_local_results(batch)).tolist()
                first = self.next[index]
                self.next[index] += len(numbers)
                if numbers != list(range(first, self.next[index])):
                    raise AssertionError(f"a batch that should begin at {first} is {numbers}")
            got.clear()
        return super().taken()


KINDS: Final[dict[str, type[Loop]]] = {
    "compiled": Loop,
    "eager": Eager,
    "reduce": Reduce,
    "read": Read,
    "compile": Compile,
    "ragged": Ragged,
    "input": Input,
}


def require(value: Any, number: float) -> None:
    """Checks that an array has one number everywhere."""
    if not np.allclose(np.asarray(value), number):
        raise AssertionError(f"{value} should be {number}")


def interrupts(count: int, seed: int = 0) -> list[str]:
    """Interrupts loops of each kind, in a process for each kind."""
    wrong: list[str] = []
    began = time.monotonic()
    for number, kind in enumerate(KINDS):
        share = count // len(KINDS) + (number < count % len(KINDS))
        program = [sys.executable, "-m", "tests.soak.interrupts", kind, str(share), str(seed)]
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
        lines = done.stdout.splitlines()
        wrong += [f"{kind}: {line}" for line in lines if not line.startswith("ok")]
        if done.returncode:
            wrong.append(f"{kind} ended with {done.returncode}: {done.stderr[-3000:]}")
    print(f"{count} interrupts in {time.monotonic() - began:.0f} s: {len(wrong)} wrong")
    return wrong


def run(kind: str, count: int, seed: int) -> Iterator[str]:
    """Interrupts a loop of one kind; yields what was wrong."""
    warnings.simplefilter("ignore", RecompilationWarning)  # a new function each time is meant
    dl.use_cpu_devices(REPLICAS)
    loop = KINDS[kind](dl.MirroredStrategy())
    loop.step(0)
    done, numbers = 1, random.Random(f"{kind} {seed}")
    for interrupt in range(count):
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        first = done
        try:
            done = _interrupted(loop.step, done, numbers.uniform(0.0, loop.longest))
            now = loop.taken()
            if now not in (done, done + 1):
                yield f"interrupt {interrupt}: {now - first} of {done - first} steps were taken"
            loop.step(now)
            done = now + 1
            if loop.taken() != done:
                yield f"interrupt {interrupt}: the step after it was not taken"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            text = "".join(traceback.format_exception(error)[-6:]).replace("\n", " | ")
            yield f"interrupt {interrupt}: {type(error).__name__}: {error}: {text}"
            loop = KINDS[kind](dl.MirroredStrategy())
            done = 0
    faulthandler.cancel_dump_traceback_later()
    yield f"ok: {count} interrupts"


def _interrupted(step: Callable[[int], None], done: int, seconds: float) -> int:
    """Takes steps until an interrupt; returns how many were done before it."""
    came = False

    def handler(*_: Any) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        while not came:  # Python ignores what is raised in a finaliser
            step(done)
            done += 1
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return done


if __name__ == "__main__":
    for line in run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):
        print(line, flush=True)

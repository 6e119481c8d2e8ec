"""Measures the last batch of an epoch, whose parts have different sizes, beside full batches.

Both take turns within a process, so that a machine that slows down slows both. A first step
includes tracing and compiling. The full batch's is the first step of its process; a usual one
is that of a batch which divides, compiled last.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

from tests.bench import process

REPLICAS = (1, 3, 8)
LAST = 133
"""The examples of the ragged batch: 17 or 14 on each of 8 replicas."""

STEPS = 30
LIMIT_SECONDS = 300.0

Measured = dict[str, float]


def report(rounds: int) -> None:
    """Measures in processes of their own, and prints medians and their range."""
    print(f"\nragged: a step of {LAST} examples beside one of a full batch, distlab")
    for kind in ("mlp", "cnn"):
        for replicas in REPLICAS:
            found = [
                process.measured(__spec__.name, kind, str(replicas), seconds=LIMIT_SECONDS)
                for _ in range(rounds)
            ]
            print(
                f"  {kind}, {replicas} replicas: {_text(found, 'ragged_ms')} ms, full batch "
                f"{_text(found, 'full_ms')} ms: {_text(found, 'later')} of it;\n    the first step "
                f"{_text(found, 'first')} of the process's first, "
                f"{_text(found, 'first_usual')} of a usual first one",
                flush=True,
            )


def measure(kind: str, replicas: int) -> Measured:
    """Returns milliseconds and ratios of one process."""
    import jax  # not at the top, for peers whose environment has no JAX

    from tests.bench import models, work
    from tests.bench.with_distlab import WithDistlab

    bench = WithDistlab(replicas)
    model, start, size = (
        (models.mlp, work.initial_mlp(), work.BATCH)
        if kind == "mlp"
        else (models.cnn, work.initial_cnn(), work.CNN_BATCH)
    )
    images, labels = work.data(size)
    if kind == "cnn":
        images = images.reshape(-1, work.SIDE, work.SIDE, 1)
    step, _ = bench.step(model, start, size)
    equal = (LAST // replicas + 2) * replicas
    batches = {
        name: next(iter(bench.batches((images[:rows], labels[:rows]), rows)))
        for name, rows in (("full", size), ("ragged", LAST), ("equal", equal))
    }

    def seconds(name: str) -> float:
        began = time.perf_counter()
        jax.block_until_ready(bench.strategy.run(step, args=batches[name]))
        return time.perf_counter() - began

    first = {name: seconds(name) for name in batches}
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(STEPS):
        for name, taken in times.items():
            taken.append(seconds(name))
    later = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        "ragged_ms": later["ragged"] * 1e3,
        "full_ms": later["full"] * 1e3,
        "later": float(np.median(np.divide(times["ragged"], times["full"]))),
        "first": first["ragged"] / first["full"],
        "first_usual": first["ragged"] / first["equal"],
    }


def _text(found: list[Measured], name: str) -> str:
    numbers = [one[name] for one in found]
    spread = f"{min(numbers):.2f} to {max(numbers):.2f}"
    return f"{statistics.median(numbers):.2f} ({spread})"


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))

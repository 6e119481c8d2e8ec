"""Workers that are killed while their cluster starts: what the others raise, and when."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from typing import Final

from tests.processes.cluster import run_workers

START_SECONDS: Final = 8
"""The others must have raised 5 s after this limit of a start."""

PROGRAM: Final = """
import os, signal, threading, time
import jax.numpy as jnp
import distlab as dl

victim, seconds = ARGUMENTS
if RANK == victim:
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
began = time.monotonic()
try:
    strategy = dl.MultiWorkerMirroredStrategy()
    while time.monotonic() < began + 60:
        float(strategy.reduce("SUM", strategy.run(lambda: jnp.ones(())), axis=None))
except BaseException as error:
    show("ended", [type(error).__name__, str(error), time.monotonic() - began])
"""


def starting_workers(count: int, seed: int = 0) -> list[str]:
    """Kills one of two or three workers in each of `count` starts."""
    wrong, slowest, began = [], 0.0, time.monotonic()
    errors: Counter[str] = Counter()
    for number in range(count):
        numbers = random.Random(1000 * seed + number)
        workers = numbers.choice([2, 3])
        victim, seconds = numbers.randrange(workers), numbers.uniform(0.0, 2.0)
        name = f"start {number} (worker {victim} of {workers} at {seconds:.2f} s)"
        try:
            outcomes = run_workers(
                PROGRAM.replace("ARGUMENTS", repr((victim, seconds))),
                workers=workers,
                environment={"DISTLAB_START_SECONDS": str(START_SECONDS)},
            )
        except (AssertionError, subprocess.TimeoutExpired) as error:
            wrong.append(f"{name}: {error!r}"[:2000])
            continue
        for rank, outcome in enumerate(outcomes):
            if rank == victim:
                continue
            kind, text, after = outcome.shown.get("ended", ["nothing", "", 0.0])
            errors[kind] += 1
            slowest = max(slowest, after)
            named = f"worker {victim}" in text or f"worker:{victim}" in text
            if kind not in {"ClusterError", "WorkerError"} or not named:
                wrong.append(f"{name}, worker {rank}: {outcome.code}, {kind}: {text[:200]}")
            elif after > START_SECONDS + 5:
                wrong.append(f"{name}, worker {rank}: {kind} after {after:.1f} s")
    print(
        f"{count} kills while starting in {time.monotonic() - began:.0f} s: the others raised "
        f"{dict(errors)} within {slowest:.1f} s; {len(wrong)} wrong"
    )
    return wrong

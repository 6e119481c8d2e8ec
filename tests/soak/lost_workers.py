"""Workers that are killed at random moments of loops of many kinds: what the others raise."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.processes.cluster import Outcome, run_workers

MOST_SECONDS: Final = 5.0
"""The others must have raised so soon after a kill."""

PROGRAM: Final = """
import os, signal, threading, time
import jax, jax.numpy as jnp, numpy as np
import distlab as dl

kind, victim, steps, seconds, folder = ARGUMENTS
strategy = dl.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = dl.Variable(jnp.zeros(4), aggregation=dl.VariableAggregation.SUM)
    count = dl.Variable(0.0, aggregation=dl.VariableAggregation.MEAN)
    own = dl.Variable(0.0, synchronization=dl.VariableSynchronization.ON_READ,
                      aggregation=dl.VariableAggregation.SUM)
data = dl.data.Dataset.range(10**6).map(lambda x: np.float32(x % 7))
batches = iter(strategy.experimental_distribute_dataset(
    data.batch(2 * strategy.num_replicas_in_sync)))
uneven = iter(strategy.experimental_distribute_dataset(
    data.batch(2 * strategy.num_replicas_in_sync - 1)))
eagerly = dl.RunOptions(run_eagerly=True)
checkpoint = dl.train.Checkpoint(total=total, count=count)
kept = []

def summed(x):
    return dl.get_replica_context().all_reduce("SUM", x.sum())

def assigning(x):
    total.assign_add(jnp.ones(4) * x.sum())
    count.assign_add(1.0)
    own.assign_add(x.sum())
    return summed(x)

def row(x):
    return x.sum()[None] + jnp.zeros(3)

def merging(x):
    dl.get_replica_context().merge_call(
        lambda s, y: s.extended.update(total, lambda v, z: v.assign_add(jnp.ones(4) * z), (y,)),
        args=(summed(x),))
    return summed(x)

def run(fn, x, **options):
    return strategy.run(fn, args=(x,), **options)

def local(value):
    return strategy.experimental_local_results(value)[0]

def late(value):
    kept.append(value)
    return kept.pop(0) if len(kept) > 8 else value

def batch_reduce(value):
    return strategy.extended.batch_reduce_to("SUM", [(value, total), (value, total)])

loops = {
    "variables": lambda x: run(assigning, x),
    "values": lambda x: run(summed, x),
    "variables, reduce": lambda x: strategy.reduce("SUM", run(assigning, x), axis=None),
    "reduce": lambda x: strategy.reduce("MEAN", run(row, x), axis=None),
    "reduce axis": lambda x: strategy.reduce("MEAN", run(row, x), axis=0),
    "gather": lambda x: strategy.gather(run(row, x), axis=0),
    "batch_reduce_to": lambda x: batch_reduce(run(row, x)),
    "eager": lambda x: run(summed, x, options=eagerly),
    "eager variables": lambda x: run(assigning, x, options=eagerly),
    "float": lambda x: float(local(run(summed, x))),
    "numpy": lambda x: np.asarray(local(run(summed, x))),
    "late float": lambda x: float(local(late(run(assigning, x)))),
    "block": lambda x: jax.block_until_ready(run(assigning, x)),
    "item": lambda x: local(run(summed, x)).item(),
    "read": lambda x: (run(assigning, x), total.numpy(), float(own)),
    "assign": lambda x: (run(assigning, x), total.assign(total + 1.0)),
    "device_get": lambda x: jax.device_get(local(run(assigning, x))),
    "jnp": lambda x: float(jnp.sqrt(local(run(summed, x))) + 1),
    "late jnp": lambda x: float(jnp.sqrt(local(late(run(assigning, x)))) + 1),
    "print": lambda x: str(run(summed, x)),
    "ragged": lambda x: run(assigning, next(uneven)),
    "merge": lambda x: run(merging, x),
    "save": lambda x: (run(assigning, x), checkpoint.write(folder)),
    "make": lambda x: (run(assigning, x), dl.Variable(1.0), strategy.replicate(jnp.ones(2))),
}
x = next(batches)
taken = 0

def loop(limit):
    global taken
    end = time.monotonic() + 60
    while taken != limit and time.monotonic() < end:
        loops[kind](next(batches))
        taken += 1

def die():
    show("died", time.monotonic())
    os.kill(os.getpid(), signal.SIGKILL)

def outcome(work):
    try:
        work()
    except BaseException as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]

loops[kind](x)
if RANK == victim:
    if seconds is not None:
        threading.Timer(seconds, die).start()
    with strategy.scope():
        loop(steps)
    die()
with strategy.scope():
    show("first", outcome(lambda: loop(None)))
show("at", time.monotonic())
show("steps", taken)
again = {
    "run": lambda: run(assigning, x),
    "run eagerly": lambda: run(assigning, x, options=eagerly),
    "reduce": lambda: strategy.reduce("SUM", x, axis=0),
    "gather": lambda: strategy.gather(x, axis=0),
    "batch_reduce_to": lambda: batch_reduce(x),
    "next": lambda: [next(batches) for _ in range(50)],
    "write": lambda: (checkpoint.write(folder), run(summed, x)),
    "read": lambda: (total.numpy(), float(count), float(own), run(assigning, x)),
}
show("again", {name: outcome(work) for name, work in again.items()})
new = lambda: (total.assign(jnp.ones(4)), count.assign(1.0), total.numpy(), float(count))
show("new", outcome(new))
show("end", time.monotonic())
"""
KINDS: Final = tuple(
    line.split('"')[1]
    for line in PROGRAM.splitlines()
    if line.startswith('    "') and " x: " in line
)


def lost_workers(folder: Path, count: int, seed: int = 0) -> list[str]:
    """Kills one of two or three workers in each of `count` loops."""
    wrong, seconds, began = [], [0.0], time.monotonic()
    errors: Counter[str] = Counter()
    for number in range(count):
        numbers = random.Random(1000 * seed + number)
        workers, devices = numbers.choice([2, 2, 3]), numbers.choice([1, 2])
        victim = numbers.randrange(workers)
        kind = KINDS[number % len(KINDS)]
        steps = numbers.randrange(40) if numbers.random() < 0.5 else None
        after = numbers.uniform(0.0, 0.4) if steps is None else None
        arguments = kind, victim, steps, after, str(folder / f"lost-{seed}-{number}")
        label = ", ".join(map(str, (kind, workers, devices, victim, steps, after)))
        name = f"kill {number} ({label})"
        try:
            outcomes = run_workers(
                PROGRAM.replace("ARGUMENTS", repr(arguments)),
                workers=workers,
                environment={"JAX_NUM_CPU_DEVICES": str(devices)},
            )
        except (AssertionError, subprocess.TimeoutExpired) as error:
            wrong.append(f"{name}: {error!r}"[:2000])
            continue
        died = outcomes[victim].shown.get("died", 0.0)
        for rank, outcome in enumerate(outcomes):
            if rank != victim:
                errors[outcome.shown.get("first", ["no report"])[0]] += 1
                seconds.append(outcome.shown.get("at", 0.0) - died)
                wrong += [
                    f"{name}, worker {rank}: {text}" for text in _wrong(outcome, victim, died)
                ]
    print(
        f"{count} kills of workers in {time.monotonic() - began:.0f} s: the others raised "
        f"{dict(errors)} within {max(seconds):.2f} s; {len(wrong)} wrong"
    )
    return wrong


def _wrong(outcome: Outcome, victim: int, died: float) -> list[str]:
    """Returns what one of the other workers should have raised and did not."""
    shown = outcome.shown
    if outcome.code or "end" not in shown:
        return [f"ended with {outcome.code}, after {shown}"]
    raised = {"first": shown["first"], **shown["again"]}
    named = f"worker {victim} on "
    wrong = [
        f"{verb} raised {kind}: {text[:200]}"
        for verb, (kind, text) in raised.items()
        if kind != "WorkerError" or not text.startswith(named)
    ]
    if shown["at"] - died > MOST_SECONDS:
        wrong.append(f"raised after {shown['at'] - died:.1f} s")
    if shown["new"][0] != "nothing":
        wrong.append(f"assigning raised {shown['new']}")
    return wrong

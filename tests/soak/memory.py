"""The growth of resident memory in long uses, each in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from tests.synthetic import ListSource, whole_run
from tests.ui.viewer import viewing

MB = 1e6
MOST_OF_A_LOOP = 50 * MB
"""The ring, standing events and what their readers need at once: no step adds to it for good."""

NOISE = 10 * MB
FIRST_STEPS = 1_000
FIRST_USES = 20


def resident() -> float:
    """Resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def training(strategy: dl.Strategy, epochs: int) -> Callable[[Callable[[jax.Array], None]], None]:
    """Returns a loop over a dataset that hands each step's loss to a function."""
    data = dl.data.Dataset.from_tensor_slices(np.ones((64, 16), np.float32)).batch(32)
    with strategy.scope():
        weights = dl.Variable(np.ones((16, 4), np.float32), name="weights")

    def step(x: jax.Array) -> jax.Array:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(weights.value())
        weights.assign_sub(0.1 * dl.get_replica_context().all_reduce("MEAN", gradient))
        return loss

    def train(log: Callable[[jax.Array], None]) -> None:
        for batch in strategy.experimental_distribute_dataset(data.repeat(epochs)):
            log(strategy.reduce("MEAN", strategy.run(step, args=(batch,)), axis=None))

    return train


def logged_loop(steps: int) -> float:
    """Returns by how many bytes a loop grows that records and logs each step."""
    dl.use_cpu_devices(2)
    train = training(dl.MirroredStrategy(), steps // 2)
    first: list[float] = []
    logged = 0
    with tempfile.TemporaryDirectory() as name, dl.record(Path(name) / "run") as recording:

        def log(loss: jax.Array) -> None:
            nonlocal logged
            recording.log(loss=loss)
            logged += 1
            if logged == FIRST_STEPS:
                first.append(resident())

        train(log)
        return resident() - first[0]


def dropped_strategies(count: int) -> float:
    """Returns by how many bytes strategies grow that are made, trained with and dropped."""
    dl.use_cpu_devices(2)
    first = 0.0
    for number in range(count):
        training(dl.MirroredStrategy(), 2)(lambda _: None)
        gc.collect()
        if number == FIRST_USES:
            first = resident()
    return resident() - first


def page_openings(count: int) -> float:
    """Returns by how many bytes a server grows whose page is opened and closed."""
    from distlab_dashboard.server import UNUSED_SECONDS, serve

    source = ListSource(whole_run(200))
    source.live = False
    server = serve(source, port=0)

    async def visit() -> None:
        async with viewing(server) as viewer:
            await viewer.settled()

    def after(visits: int) -> float:
        for _ in range(visits):
            asyncio.run(visit())
        time.sleep(UNUSED_SECONDS + 5)  # sessions outlive their pages by so long
        gc.collect()
        return resident()

    first = after(count)  # as many sessions at once as later
    grown = after(count) - first
    server.stop()
    return grown


def memory(steps: int, strategies: int, pages: int) -> list[str]:
    """Uses distlab for long; memory must stay flat."""
    wrong = []
    for use, count, most in (
        (logged_loop, steps, MOST_OF_A_LOOP),
        (dropped_strategies, strategies, NOISE),
        (page_openings, pages, NOISE),
    ):
        if not count:
            continue
        # A process that ran something else before has room to hide growth in.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            grown = alone.submit(use, count).result()
        what = f"{use.__name__.replace('_', ' ')} x {count:,}: memory grew by {grown / MB:.1f} MB"
        print(what, flush=True)
        if grown > most:
            wrong.append(f"{what}, at most {most / MB:.0f}")
    return wrong

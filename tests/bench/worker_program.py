"""One worker of `python -m tests.bench.workers`: trains a perceptron, and prints ms a step.

Usage: worker_program.py raw|distlab|distlab_recording, started by `distlab launch`, with the folder
of the run in BENCH_RUN.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

PIXELS, HIDDEN, CLASSES = 784, 512, 10
BATCH_OF_REPLICA: Final = 64
BATCHES: Final = 8
WARM_UP: Final = 20
STEPS: Final = 40
ROUNDS: Final = 5
RATE: Final = 0.1


def weights() -> tuple[Any, Any]:
    """Returns the first weights: `(784, 512)` and `(512, 10)`, float32."""
    first = np.random.default_rng(0).normal(size=(PIXELS, HIDDEN), scale=0.05)
    return first.astype(np.float32), np.zeros((HIDDEN, CLASSES), np.float32)


def examples(replicas: int) -> tuple[Any, Any]:
    """Returns images `(n, 784)` and labels `(n,)` for eight global batches."""
    count = BATCHES * BATCH_OF_REPLICA * replicas
    rng = np.random.default_rng(1)
    images = rng.normal(size=(count, PIXELS)).astype(np.float32)
    return images, rng.integers(0, CLASSES, count).astype(np.int32)


def gradients(parameters: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Returns the mean loss of a replica's examples, and its gradients."""
    import jax
    import jax.numpy as jnp

    def loss(parameters: Any) -> Any:
        logits = jax.nn.relu(x @ parameters[0]) @ parameters[1]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(y.shape[0]), y])

    value, gradient = jax.value_and_grad(loss)(parameters)
    return value, gradient


def with_raw_jax() -> Callable[[int], None]:
    """Returns a function that trains for some steps with `jax.distributed` and `shard_map`."""
    cluster = json.loads(os.environ["TF_CONFIG"])
    addresses, index = cluster["cluster"]["worker"], cluster["task"]["index"]
    devices = int(os.environ["DISTLAB_DEVICES_PER_WORKER"])
    os.environ["PJRT_NPROC"] = str(2 * devices)  # else steps in flight hang
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    from distlab.devices import connections

    jax.config.update("jax_num_cpu_devices", devices)
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(
        addresses[0], len(addresses), index, cluster_detection_method="deactivate"
    )
    mesh = Mesh(np.array(jax.devices()), ("replica",))
    split, whole = NamedSharding(mesh, P("replica")), NamedSharding(mesh, P())
    images, labels = examples(len(jax.devices()))
    batch = BATCH_OF_REPLICA * len(jax.devices())
    part = batch // len(addresses)

    def step(parameters: Any, x: Any, y: Any) -> tuple[Any, Any]:
        loss, gradient = gradients(parameters, x, y)
        gradient = jax.lax.pmean(gradient, "replica")
        moved = [w - RATE * g for w, g in zip(parameters, gradient, strict=True)]
        return tuple(moved), loss[None]

    train: Any = jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(P(), P("replica"), P("replica")),
            out_specs=(P(), P("replica")),
            check_vma=False,
        ),
        donate_argnums=0,
    )
    held: Any = tuple(
        jax.make_array_from_callback(w.shape, whole, w.__getitem__) for w in weights()
    )
    in_flight: deque[Any] = deque()
    taken = 0

    def run(steps: int) -> None:
        nonlocal held, taken
        for _ in range(steps):
            begin = taken % BATCHES * batch + index * part
            own = slice(begin, begin + part)
            x, y = (jax.make_array_from_process_local_data(split, a[own]) for a in (images, labels))
            held, loss = train(held, x, y)
            in_flight.append(loss)
            if len(in_flight) > BATCHES:
                in_flight.popleft().block_until_ready()
            taken += 1
        in_flight[-1].block_until_ready()

    run(1)
    connections.widen()  # as distlab does: one segment of 64 kB in flight is 100 times slower
    return run


def with_distlab(recorded: bool) -> Callable[[int], None]:
    """Returns a function that trains for some steps under a MultiWorkerMirroredStrategy."""
    import distlab as dl

    strategy = dl.MultiWorkerMirroredStrategy()
    if recorded:
        dl.record(os.environ["BENCH_RUN"], overwrite=True)
    with strategy.scope():
        variables = [dl.Variable(w) for w in weights()]

    def step(x: Any, y: Any) -> Any:
        loss, gradient = gradients(tuple(v.value() for v in variables), x, y)
        gradient = dl.get_replica_context().all_reduce("MEAN", gradient)
        for variable, change in zip(variables, gradient, strict=True):
            variable.assign_sub(RATE * change)
        return loss

    replicas = strategy.num_replicas_in_sync
    dataset = dl.data.Dataset.from_tensor_slices(examples(replicas))
    batches = dataset.batch(BATCH_OF_REPLICA * replicas).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(batches))

    def run(steps: int) -> None:
        for _ in range(steps):
            loss = strategy.run(step, args=next(iterator))
        loss.stacked.block_until_ready()

    return run


def main(peer: str) -> None:
    """Trains, and prints the median of the rounds."""
    run = with_raw_jax() if peer == "raw" else with_distlab(peer == "distlab_recording")
    run(WARM_UP)
    times = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        run(STEPS)
        times.append((time.monotonic() - began) / STEPS * 1e3)
    print(f"ms a step: {statistics.median(times):.2f}", flush=True)
    if peer == "raw":
        os._exit(0)  # else JAX waits for a barrier of all processes


if __name__ == "__main__":
    main(sys.argv[1])

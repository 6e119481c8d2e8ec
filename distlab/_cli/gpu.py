"""The numbers that distlab shows of a GPU, compared with what is so: `distlab doctor --gpu`.

Each check runs on any device of JAX, so that it can be tried where no GPU is.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, NamedTuple

_BLOCK_BYTES: Final = 256 << 20
_CAPTURED_STEPS: Final = 10
_CAPTURE_SECONDS: Final = 60.0

State = Literal["ok", "note", "wrong"]


class Measured(NamedTuple):
    """One comparison."""

    state: State
    subject: str
    text: str


def measured(device: Any) -> Iterator[Measured]:
    """Yields the comparisons for a device; a check that fails itself is one that is wrong."""
    checks: tuple[Callable[[Any], Iterator[Measured]], ...] = (
        _memory,
        _utilization,
        _ready,
        _flops,
        _capture,
    )
    for check in checks:
        try:
            yield from check(device)
        except Exception as error:  # noqa: BLE001 - of any driver and version
            subject = check.__name__.strip("_")
            yield Measured("wrong", subject, f"{type(error).__name__}: {error}"[:400])


def _memory(device: Any) -> Iterator[Measured]:
    """Compares memory in use with an array of a known size."""
    import jax
    import jax.numpy as jnp

    def used() -> int | None:
        stats = device.memory_stats()
        return None if not stats else int(stats["bytes_in_use"])

    before = used()
    if before is None:
        yield Measured("note", "memory", "this device reports none")
        return
    block = jax.block_until_ready(jax.device_put(jnp.ones(_BLOCK_BYTES // 4), device))
    grown = (used() or 0) - before
    block.delete()
    left = (used() or 0) - before
    right = abs(grown - _BLOCK_BYTES) < 1 << 20 and left < 1 << 20
    text = (
        f"{grown / 1e6:.1f} MB for an array of {_BLOCK_BYTES / 1e6:.1f} MB, then {left / 1e6:.1f}"
    )
    yield Measured("ok" if right else "wrong", "memory", text)


def _utilization(device: Any) -> Iterator[Measured]:
    """Compares NVML's utilization while products run, and while nothing does."""
    from distlab.profiling.nvml import gpu_use

    if gpu_use([device]) is None:
        yield Measured("note", "utilization", "unknown; it needs nvidia-ml-py and no MIG")
        return
    chain, array = _products(device)
    shares = []
    for works in (True, False):
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            if works:
                array = chain(array)
                array.block_until_ready()
            else:
                time.sleep(0.1)
        use = gpu_use([device])
        shares.append(use.utilization[0] if use else -1.0)
    busy, idle = shares
    state: State = "ok" if busy > 0.6 and 0 <= idle < 0.2 else "wrong"
    yield Measured(state, "utilization", f"{busy:.0%} while products run, {idle:.0%} after")


def _ready(device: Any) -> Iterator[Measured]:
    """Compares when an array says that it is ready with when a waiting thread goes on."""
    chain, array = _products(device, 16)
    early, late = 0, []
    for _ in range(12):
        result = chain(array)
        early += result.is_ready()
        ends: list[float] = []

        def wait(result: Any = result, ends: list[float] = ends) -> None:
            result.block_until_ready()
            ends.append(time.perf_counter())

        waiter = threading.Thread(target=wait)
        waiter.start()
        while not result.is_ready():
            time.sleep(0.0002)
        seen = time.perf_counter()
        waiter.join()
        late.append(seen - ends[0])
    right = early == 0 and abs(median(late)) < 0.001
    text = (
        f"{early} of 12 results were ready at once; seen {1e6 * median(late):+.0f} us after the end"
    )
    yield Measured("ok" if right else "wrong", "ready", text)


def _flops(device: Any) -> Iterator[Measured]:
    """Compares a program's operations with those of its product."""
    import jax
    import jax.numpy as jnp

    import distlab as dl

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 512), (512, 2048))]
    with jax.default_device(device):
        counted = dl.program(jax.jit(jnp.matmul), *shapes).flops
    expected = 2 * 1024 * 512 * 2048
    right = counted is not None and 0.9 < counted / expected < 1.1
    text = f"{counted or 0:.4g} FLOP of {expected:.4g}"
    yield Measured("ok" if right else "wrong", "operations", text)


def _capture(device: Any) -> Iterator[Measured]:
    """Compares the computing of a capture with how long its steps take."""
    import jax
    import jax.numpy as jnp

    import distlab as dl

    size = _size(device) // 2
    strategy = dl.MirroredStrategy([device])
    with strategy.scope():
        weights = [
            dl.Variable(jax.random.normal(jax.random.key(n), (size, size)) / size) for n in range(4)
        ]

    def step(x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight.value())
        return x.sum()

    def run(x: Any) -> float:
        began = time.perf_counter()
        jax.block_until_ready(strategy.run(step, args=(x,)))
        return time.perf_counter() - began

    x = jax.device_put(jnp.ones((512, size)), device)
    alone = median([run(x) for _ in range(20)][10:])
    with (
        tempfile.TemporaryDirectory() as folder,
        dl.record(Path(folder) / "run", probe=False) as recording,
    ):
        future = recording.capture(_CAPTURED_STEPS, seconds=_CAPTURE_SECONDS)
        for _ in range(_CAPTURED_STEPS + 4):
            run(x)
        capture = future.result(_CAPTURE_SECONDS)
    share = capture.compute_ns[0] / max(capture.steps, 1) / 1e9 / alone
    right = 0.3 < share < 1.2
    text = f"{share:.0%} computing of a step of {1e3 * alone:.2f} ms, in {capture.steps} steps"
    yield Measured("ok" if right else "wrong", "capture", text)


def _products(device: Any, times: int = 4) -> tuple[Any, Any]:
    """Returns a chain of products and its argument."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def chain(array: jax.Array) -> jax.Array:
        for _ in range(times):
            array = jnp.tanh(array @ array)
        return array

    size = _size(device)
    array = jax.device_put(jax.random.normal(jax.random.key(0), (size, size)) / size, device)
    return chain, jax.block_until_ready(chain(array))


def _size(device: Any) -> int:
    """Returns the side of matrices that keep a device busy for some milliseconds."""
    return 4096 if device.platform == "gpu" else 512

"""Measures what `observe` adds to a call, beside a call that costs nothing itself."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any, Final

from tests.bench import process

DEVICES: Final = 8
LEAVES: Final = (2, 30, 300)
LIMITS_US: Final = {2: 10.0, 300: 20.0}
"""The most that a call may cost, with so many arrays in its arguments."""

_CALLS: Final = 1_000
_GROUPS: Final = 7
_LIMIT_SECONDS: Final = 120.0


class Stub:
    """A function that returns at once the result of an earlier call."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __call__(self, *_: Any) -> Any:
        return self._result


def report(rounds: int) -> None:
    """Measures in processes of their own, and prints the smallest numbers and their range."""
    print("\nobserve: what it adds to a call on 8 devices, by arrays in the arguments")
    found = [process.measured(__spec__.name, seconds=_LIMIT_SECONDS) for _ in range(rounds)]
    for leaves in LEAVES:
        times = [one[str(leaves)] for one in found]
        limit = f", at most {LIMITS_US[leaves]:g}" if leaves in LIMITS_US else ""
        print(
            f"  {leaves:>3} arrays {statistics.median(times):10.1f} us   "
            f"({min(times):.1f} to {max(times):.1f}{limit})",
            flush=True,
        )


def added_us(leaves: int) -> float:
    """Returns the microseconds that an observed call takes beside the call itself."""
    import jax  # not at the top, for peers whose environment has no JAX
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import distlab as dl

    whole = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec())
    arrays = {f"w{n}": np.full((2, 2), n, np.float32) for n in range(leaves - 1)}
    state, x = jax.device_put((arrays, np.ones((8, 2), np.float32)), whole)
    step = dl.observe(
        jax.jit(lambda state, x: (jax.tree.map(lambda leaf: leaf + 1, state), x.sum()))
    )
    stub = Stub(jax.block_until_ready(step(state, x)))
    vars(step)["_fn"] = stub
    times = []
    for _ in range(_GROUPS):
        began = time.perf_counter()
        for _ in range(_CALLS):
            step(state, x)
        observed = time.perf_counter()
        for _ in range(_CALLS):
            stub(state, x)
        times.append(observed - began - (time.perf_counter() - observed))
    return min(times) / _CALLS * 1e6


if __name__ == "__main__":
    from distlab import use_cpu_devices

    use_cpu_devices(DEVICES)
    print(json.dumps({leaves: added_us(leaves) for leaves in LEAVES}))

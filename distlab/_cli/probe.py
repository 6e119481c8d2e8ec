"""Starts devices and sums over them; `distlab doctor` runs it in another process."""

from __future__ import annotations

import json
import os
import sys


def probe(count: int) -> dict[str, object]:
    """Sums a one from each of `count` CPU devices."""
    import jax

    import distlab as dl

    dl.use_cpu_devices(count)
    strategy = dl.MirroredStrategy()

    def one() -> jax.Array:
        return jax.numpy.float32(1)

    total = strategy.reduce("SUM", strategy.run(one), axis=None)
    return {
        "devices": [f"{d.platform.upper()}:{d.id}" for d in jax.local_devices()],
        "sum": float(total),
        "threads": os.environ.get("PJRT_NPROC"),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(int(sys.argv[1]))) + "\n")

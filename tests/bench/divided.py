"""Measures a step whose variables are divided, beside raw JAX by hand.

Over the replicas, by hand is a `shard_map` that gathers the parameters, scatters the sums of
gradients and updates the parts (ZeRO-3, FSDP); annotated is a `jit` of arrays in parts, in which
XLA does so. On a model axis, by hand is a `shard_map` over the replicas of arrays on a mesh of two
axes. All take turns within a process, so that a machine that slows down slows all.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from tests.bench import process

REPLICAS: Final = 8
SIZES: Final = (256, 1024, 1024, 1024, 16)
LAYOUTS: Final = {f"w{n}": (None, "model") if n % 2 == 0 else ("model",) for n in range(4)}
GROUPS: Final = 6
STEPS: Final = 5
"""Steps of a group, after which all is awaited: a variable that was read is copied once."""

LIMIT_SECONDS: Final = 300.0

Measured = dict[str, float]


def report(kind: str, rounds: int) -> None:
    """Measures in processes of their own, and prints medians and their range."""
    print(f"\n{kind}: a step of a perceptron with Adam, {REPLICAS} devices")
    found = [process.measured(__spec__.name, kind, seconds=LIMIT_SECONDS) for _ in range(rounds)]
    for name in found[0]:
        times = [one[name] for one in found]
        ratios = [one["by hand"] / one[name] for one in found]
        print(
            f"  {name:<18} {statistics.median(times):10.1f} ms   "
            f"({statistics.median(ratios):.2f}x, {min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def measure(kind: str) -> Measured:
    """Returns the milliseconds of a step of each kind, in one process."""
    if kind == "model_axis":
        steps = {
            "by hand": _by_hand_on_a_model_axis(),
            kind: _run(model_axis=2, layouts=LAYOUTS),
            "mirrored": _run(),
        }
    else:
        steps = {
            "by hand": _raw(annotated=False),
            "annotated": _raw(annotated=True),
            "divided": _run(shard_variables=True),
            "mirrored": _run(),
        }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(GROUPS + 1):
        for name, group in steps.items():
            began = time.perf_counter()
            group()
            if number:  # the first one compiles
                times[name].append((time.perf_counter() - began) / STEPS)
    return {name: statistics.median(taken) * 1e3 for name, taken in times.items()}


def _data() -> tuple[Any, Any, Any]:
    import numpy as np  # not at the top, for peers whose environment has no JAX

    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(SIZES)
    weights = [rng.normal(size=pair).astype("f") / np.float32(pair[0]) ** 0.5 for pair in pairs]
    x = rng.normal(size=(128, SIZES[0])).astype("f")
    return weights, x, rng.normal(size=(128, SIZES[-1])).astype("f")


def _loss(weights: Any, x: Any, y: Any) -> Any:
    import jax

    *hidden, last = weights
    for weight in hidden:
        x = jax.nn.relu(x @ weight)
    return ((x @ last - y) ** 2).mean()


def _adam(state: Any, g: Any, n: Any) -> tuple[Any, Any, Any]:
    import jax.numpy as jnp

    w, m, v = state
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return w - 1e-3 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8), m, v


def _raw(*, annotated: bool) -> Callable[[], Any]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:REPLICAS]), ("replica",))
    split, one = NamedSharding(mesh, P("replica")), NamedSharding(mesh, P())

    def updated(state: Any, gradients: Any, n: Any) -> Any:
        return [_adam(held, g, n) for held, g in zip(state, gradients, strict=True)]

    def by_hand(state: Any, n: Any, x: Any, y: Any) -> Any:
        whole = [jax.lax.all_gather(w, "replica", tiled=True) for w, _, _ in state]
        loss, gradients = jax.value_and_grad(_loss)(whole, x, y)
        own = [jax.lax.psum_scatter(g / REPLICAS, "replica", tiled=True) for g in gradients]
        return updated(state, own, n), n + 1, jax.lax.pmean(loss, "replica")

    def by_xla(state: Any, n: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)([w for w, _, _ in state], x, y)
        return updated(state, gradients, n), n + 1, loss

    specs, outputs = (P("replica"), P(), P("replica"), P("replica")), (P("replica"), P(), P())
    mapped = jax.shard_map(by_hand, mesh=mesh, in_specs=specs, out_specs=outputs, check_vma=False)
    shardings = (split, one, one) if annotated else None
    step = by_xla if annotated else mapped
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=shardings)
    return _steps(jitted, [split] * (len(SIZES) - 1), one, split)


def _by_hand_on_a_model_axis() -> Callable[[], Any]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:REPLICAS]).reshape(-1, 2), ("replica", "model"))
    places = [NamedSharding(mesh, P(*layout)) for layout in LAYOUTS.values()]
    whole = NamedSharding(mesh, P())

    def step(state: Any, n: Any, x: Any, y: Any) -> Any:
        found = jax.value_and_grad(_loss)([w for w, _, _ in state], x, y)
        loss, gradients = jax.lax.pmean(found, "replica")
        return [_adam(one, g, n) for one, g in zip(state, gradients, strict=True)], n + 1, loss

    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(P(), P(), P("replica"), P("replica")),
        out_specs=P(),
        axis_names={"replica"},  # XLA divides the work along the other axis; it takes twice the
        check_vma=False,  # time where both are left to it
    )
    out = ([(place,) * 3 for place in places], whole, whole)
    jitted = jax.jit(mapped, donate_argnums=(0, 1), out_shardings=out)
    return _steps(jitted, places, whole, NamedSharding(mesh, P("replica")))


def _steps(step: Any, places: list[Any], whole: Any, split: Any) -> Callable[[], Any]:
    """Returns a group of steps, of weights and moments at some places, and a batch."""
    import jax
    import numpy as np

    weights, x, y = _data()
    state = [
        jax.device_put((w, np.zeros_like(w), np.zeros_like(w)), place)
        for w, place in zip(weights, places, strict=True)
    ]
    batch = jax.device_put((x, y), split)
    held = [state, jax.device_put(np.float32(1), whole)]

    def call() -> None:
        for _ in range(STEPS):
            held[0], held[1], loss = step(*held, *batch)
        jax.block_until_ready((held, loss))

    return call


def _run(**options: Any) -> Callable[[], Any]:
    import jax
    import numpy as np

    import distlab as dl

    strategy = dl.MirroredStrategy(**options)
    weights, x, y = _data()
    with strategy.scope():
        zeros = [np.zeros_like(w) for w in weights]
        state = [
            [dl.Variable(part, name=f"w{n}") for part in (w, z, z)]
            for n, (w, z) in enumerate(zip(weights, zeros, strict=True))
        ]
        number = dl.Variable(np.float32(0))
    batch = next(iter(strategy.experimental_distribute_dataset([(x, y)])))

    def step(x: Any, y: Any) -> Any:
        read = [w.value() for w, _, _ in state]
        found = jax.value_and_grad(_loss)(read, x, y)
        loss, gradients = dl.get_replica_context().all_reduce("MEAN", found)
        number.assign_add(1.0)
        for held, g in zip(state, gradients, strict=True):
            new = _adam([one.value() for one in held], g, number.value())
            for variable, value in zip(held, new, strict=True):
                variable.assign(value)
        return loss

    def call() -> None:
        for _ in range(STEPS):
            strategy.run(step, args=batch)
        jax.block_until_ready([one.value() for held in state for one in held])

    return call


if __name__ == "__main__":
    from distlab import use_cpu_devices

    use_cpu_devices(REPLICAS)
    print(json.dumps(measure(sys.argv[1])))

"""Sums over replicas of complex numbers that every replica knows: XLA aborts the process of some.

So they run in a process of their own.
"""

from __future__ import annotations

import json
from typing import Final

from tests.own_process import run

PROGRAM: Final = """
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
import distlab as dl

dl.use_cpu_devices(2)
strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
here = dl.get_replica_context

def known():
    return jnp.ones(2, jnp.complex64) * (1 + 2j)

def of_two(fn, *args):
    return [np.asarray(v) for v in strategy.run(fn, args).values]

def slope(combined):
    return lambda: jax.grad(lambda x: jnp.sum(combined(x).real))(known())

def variable(name):
    aggregation = dl.VariableAggregation[name]
    with strategy.scope():
        v = dl.Variable(jnp.zeros(2, jnp.complex64), aggregation=aggregation)
    strategy.run(lambda: v.assign_add(known()))
    return [v.numpy()]

batches = strategy.experimental_distribute_dataset([np.ones(3, np.complex64)])
(batch,) = batches
cases = {
    "sum": lambda: of_two(lambda: here().all_reduce("SUM", known())),
    "mean of two": lambda: of_two(lambda: sum(here().all_reduce("MEAN", [known(), known()]))),
    "jax.lax.psum": lambda: of_two(lambda: jax.lax.psum(known(), "replica")),
    "in groups": lambda: of_two(
        lambda: jax.lax.psum(known(), "replica", axis_index_groups=[[0], [1]])
    ),
    "gradient of a sum": lambda: of_two(slope(lambda x: here().all_reduce("SUM", x))),
    "gradient of jax.lax.psum": lambda: of_two(slope(lambda x: jax.lax.psum(x, "replica"))),
    "gradient of a gather": lambda: of_two(slope(lambda x: here().all_gather(x, 0))),
    "variable with SUM": lambda: variable("SUM"),
    "variable with MEAN": lambda: variable("MEAN"),
    "variable of the first": lambda: variable("ONLY_FIRST_REPLICA"),
    "partial batch": lambda: of_two(
        lambda x: here().all_reduce("SUM", known() + 0 * x.sum()), batch
    ),
}
print(json.dumps({name: repr([row.tolist() for row in case()]) for name, case in cases.items()}))
"""

ONE: Final = [1 + 2j, 1 + 2j]
TWO: Final = [2 + 4j, 2 + 4j]
SLOPE: Final = [2 + 0j, 2 + 0j]
EXPECTED: Final[dict[str, list[list[complex]]]] = {
    "sum": [TWO, TWO],
    "mean of two": [TWO, TWO],
    "jax.lax.psum": [TWO, TWO],
    "in groups": [ONE, ONE],
    "gradient of a sum": [SLOPE, SLOPE],
    "gradient of jax.lax.psum": [SLOPE, SLOPE],
    "gradient of a gather": [SLOPE, SLOPE],
    "variable with SUM": [TWO],
    "variable with MEAN": [ONE],
    "variable of the first": [ONE],
    "partial batch": [TWO, TWO],
}


def test_complex_constants_are_summed() -> None:
    ended = run(PROGRAM)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert json.loads(ended.stdout) == {name: repr(rows) for name, rows in EXPECTED.items()}

"""What several workers have together, and what each has alone."""

from __future__ import annotations

import math

import pytest

from tests.processes.cluster import Outcome, run_workers

PROGRAM = """
import numpy as np
import jax.numpy as jnp
import distlab as dl
from distlab.devices import connections
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy()
processes = group.current()

ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + jnp.zeros(2))
show("kind", type(ids).__name__)
show("components", [c.tolist() for c in ids.values])
if RANK == 1:  # one worker alone may look at what it has
    show("text", repr(ids))
    show("html", "worker 1 CPU:0" in ids._repr_html_())

# A host argument is each worker's own.
own = strategy.run(lambda x: 10 * x, args=(np.float32(RANK + 1),))
show("own", float(strategy.reduce("SUM", own, axis=None)))

# A large variable begins with the chief's bits, even those that a sum would change.
value = np.full((300, 100), [-0.0, np.nan, 1e-45, 3.0][RANK + (RANK == 1)], np.float32)
value[0] = [(-0.0, 5.0)[RANK]] * 100
with strategy.scope():
    large = dl.Variable(value)
    key = dl.Variable(np.int8(RANK + 3))
show("large", [str(x) for x in (large.numpy()[0, 0], large.numpy()[1, 1])])
show("small", int(key.numpy()))

large.assign(np.full((300, 100), RANK, np.float32))  # stays on this worker
show("assigned", float(large.numpy()[0, 0]))
large.assign_add(np.ones((300, 100), np.float32))
show("added", float(large.numpy()[0, 0]))

# A variable of no strategy is each worker's own.
with dl.MirroredStrategy(["CPU:0"]).scope():
    local = dl.Variable(float(RANK))
show("local", float(local.numpy()))

# Parts of different lengths, which the workers tell each other.
parts = strategy.experimental_distribute_values_from_function(
    lambda c: jnp.full((c.replica_id_in_sync_group + 1, 2), float(c.replica_id_in_sync_group))
)
show("shapes", parts.shapes)
show("gathered", strategy.gather(parts, axis=0).tolist())
sums = strategy.run(lambda x: jnp.sum(x), args=(parts,))
show("ragged", [float(s) for s in sums.values])

mixed = strategy.experimental_distribute_values_from_function(
    lambda c: jnp.zeros(2 if RANK else (2, 2))
)
try:
    strategy.reduce("SUM", mixed, axis=None)
except dl.errors.ValueShapeError as error:
    show("rank", str(error))
with strategy.scope():
    try:
        dl.Variable(np.zeros(2 + RANK))
        show("variable", None)
    except dl.errors.StructureError as error:
        show("variable", str(error))

def wrong():
    if RANK == 1:
        raise ValueError("bad batch")
    return dl.get_replica_context().all_reduce("SUM", jnp.ones(()))

dl.run_functions_eagerly(True)
try:
    strategy.run(wrong)
except Exception as error:
    show("eager error", [type(error).__name__, str(error)])
def uneven():
    return dl.get_replica_context().all_reduce("SUM", jnp.ones(())) if RANK else jnp.ones(())
try:
    strategy.run(uneven)
except Exception as error:
    show("eager uneven", [type(error).__name__, str(error)])
show("eager after", float(strategy.reduce("SUM", strategy.run(lambda: jnp.ones(())), axis=None)))
dl.run_functions_eagerly(False)

show("widened", connections.widen() > 0)
"""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return run_workers(PROGRAM, workers=2)


def test_each_worker_has_its_own_replicas_and_arguments(outcomes: list[Outcome]) -> None:
    for index, outcome in enumerate(outcomes):
        assert (outcome.code, outcome.shown.get("raised")) == (0, None)
        assert outcome.shown["kind"] == "PerReplica"
        assert outcome.shown["components"] == [[index, index]]
        assert outcome.shown["own"] == 30.0
        assert outcome.shown["widened"] is True
    assert outcomes[1].shown["text"] == "PerReplica:{\n  1: Array([1., 1.], dtype=float32)\n}"
    assert outcomes[1].shown["html"] is True


def test_variables_begin_with_the_chiefs_bits_and_may_part(outcomes: list[Outcome]) -> None:
    for index, outcome in enumerate(outcomes):
        assert outcome.shown["large"] == ["-0.0", "-0.0"]
        assert outcome.shown["small"] == 3
        assert outcome.shown["assigned"] == index
        assert outcome.shown["added"] == index + 1
        assert outcome.shown["local"] == index


def test_components_may_differ_in_length_between_workers(outcomes: list[Outcome]) -> None:
    for index, outcome in enumerate(outcomes):
        assert outcome.shown["shapes"] == [[1, 2], [2, 2]]
        assert outcome.shown["gathered"] == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
        assert math.isclose(outcome.shown["ragged"][0], 4.0 * index)


def test_what_does_not_fit_the_other_workers_is_refused(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert "shapes differ: [2, 2], [2]" in outcome.shown["rank"]
    assert outcomes[0].shown["variable"] is None
    assert "worker 1 makes" in outcomes[1].shown["variable"]


def test_errors_of_eager_functions_are_raised_by_all(outcomes: list[Outcome]) -> None:
    assert outcomes[1].shown["eager error"] == ["ValueError", "bad batch"]
    kind, text = outcomes[0].shown["eager error"]
    assert kind == "WorkerError"
    assert text.startswith("worker 1 on ")
    assert text.endswith("ValueError: bad batch")
    for outcome in outcomes:
        kind, text = outcome.shown["eager uneven"]
        assert kind == "ContextError"
        assert "'worker 0': None, 'worker 1': 'all_reduce SUM'" in text
        assert outcome.shown["eager after"] == 2.0

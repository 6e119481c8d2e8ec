"""Replicas of several devices: a model axis that XLA divides work along."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab import events
from distlab.advice import advise
from distlab.folds import Folds
from distlab.page.facts.run import run_facts
from tests.listening import Listener, listening

BATCH, WIDTH, STEPS = 64, 256, 22
LAYOUTS = {"w1$": (None, "model"), "b1$": ("model",), "w2$": ("model", None)}
RANDOM = np.random.default_rng(0)
START = {
    "w1": RANDOM.normal(size=(64, WIDTH)).astype(np.float32) * 0.1,
    "b1": np.zeros(WIDTH, np.float32),
    "w2": RANDOM.normal(size=(WIDTH, 10)).astype(np.float32) * 0.1,
    "b2": np.zeros(10, np.float32),
}
DATA = [
    (RANDOM.random((BATCH, 64)).astype(np.float32), RANDOM.integers(0, 10, BATCH))
    for _ in range(STEPS)
]


def loss_of(p: dict[str, Any], x: jax.Array, y: jax.Array) -> jax.Array:
    logits = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -chosen.sum() / BATCH


class Training:
    """A perceptron with momentum, in a strategy's scope."""

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weights = {n: dl.Variable(a, name=n) for n, a in START.items()}
            self.moments = {n: dl.Variable(a * 0, name=f"m/{n}") for n, a in START.items()}

    def step(self, x: jax.Array, y: jax.Array) -> jax.Array:
        values = {name: variable.value() for name, variable in self.weights.items()}
        result = jax.value_and_grad(loss_of)(values, x, y)
        loss, gradients = dl.get_replica_context().all_reduce("SUM", result)
        for name, weight in self.weights.items():
            self.moments[name].assign(0.9 * self.moments[name] + gradients[name])
            weight.assign_sub(0.1 * self.moments[name])
        return loss

    def losses(self, data: list[Any]) -> list[float]:
        batches = self.strategy.experimental_distribute_dataset(data)
        results = [self.strategy.run(self.step, args=one) for one in batches]
        return [float(self.strategy.experimental_local_results(one)[0]) for one in results]


def parts(variable: dl.Variable) -> set[tuple[int, ...]]:
    """Returns the shapes of what the devices hold of a variable."""
    return {piece.data.shape for piece in variable.storage.alive().addressable_shards}


def unsplit() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])


def split(**options: Any) -> dl.MirroredStrategy:
    return dl.MirroredStrategy(model_axis=2, layouts=LAYOUTS, **options)


@pytest.fixture(scope="module")
def trained() -> tuple[Training, list[float], Listener]:
    with listening() as heard:
        training = Training(split())
        losses = training.losses(DATA)
    return training, losses, heard


def test_replicas_of_two_devices_compute_as_of_one(
    trained: tuple[Training, list[float], Listener],
) -> None:
    training, losses, _ = trained
    assert training.strategy.num_replicas_in_sync == 4
    assert training.strategy.device_names == ("CPU:0", "CPU:2", "CPU:4", "CPU:6")
    assert np.abs(np.array(losses) - Training(unsplit()).losses(DATA)).max() <= 2.4e-7


def test_weights_and_moments_stay_divided(
    trained: tuple[Training, list[float], Listener],
) -> None:
    training, _, _ = trained
    held = {
        variable.name: parts(variable)
        for variable in (*training.weights.values(), *training.moments.values())
    }
    expected = {"w1": {(64, 128)}, "b1": {(128,)}, "w2": {(128, 10)}, "b2": {(10,)}}
    assert held == expected | {f"m/{name}": shapes for name, shapes in expected.items()}


def test_activations_move_in_a_replica_and_gradients_between(
    trained: tuple[Training, list[float], Listener],
) -> None:
    _, _, heard = trained
    (compiled,) = heard.of(events.Compile)
    found = [(c.kind, c.axes, c.wire_bytes) for c in compiled.collectives]
    assert sorted(found) == [
        ("all-reduce", ["model"], 640),
        ("all-reduce", ["replica"], 57_666),
    ]


def test_events_name_axes_and_parts(trained: tuple[Training, list[float], Listener]) -> None:
    _, _, heard = trained
    (strategy,) = heard.of(events.Strategy)
    assert strategy.axes == {"replica": 4, "model": 2}
    assert strategy.devices == [f"CPU:{n}" for n in range(8)]
    placed = {one.name: one for one in heard.of(events.Placement)}
    w1, b2 = placed["w1"], placed["b2"]
    assert (w1.layout, w1.shape, w1.spec) == ("divided", [64, WIDTH], [[], ["model"]])
    assert w1.bytes_per_device == [64 * 128 * 4] * 8
    assert (b2.layout, b2.spec, b2.bytes_per_device) == ("replicated", [], [40] * 8)


def test_a_partial_batch_computes_as_without_the_axis() -> None:
    data = [*DATA[:2], tuple(part[:29] for part in DATA[2])]
    training = Training(split())
    assert training.losses(data) == pytest.approx(Training(unsplit()).losses(data), abs=2.4e-7)
    assert parts(training.weights["w1"]) == {(64, 128)}


def test_eager_steps_read_and_assign_whole_values(eager: bool) -> None:
    strategy = dl.MirroredStrategy(model_axis=4)
    with strategy.scope():
        w = dl.Variable(np.arange(8, dtype=np.float32), name="w", layout=("model",))

    def step() -> jax.Array:
        w.assign_add(dl.get_replica_context().all_reduce("SUM", w.value()))
        return w.value()

    assert [one.tolist() for one in strategy.run(step).values] == [[3.0 * n for n in range(8)]] * 2
    assert parts(w) == {(2,)}


@pytest.mark.parametrize("examples", [16, 13])
def test_a_bare_spec_constrains_values_in_steps(examples: int) -> None:
    strategy = split()

    def halves(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(2 * x, P(None, "model"))

    def step(x: jax.Array) -> jax.Array:
        looped, _ = jax.lax.scan(lambda c, _: (halves(c), None), x, None, length=2)
        return dl.get_replica_context().all_reduce(
            "SUM", (halves(x) + jax.jit(halves)(looped)).sum()
        )

    batch = next(
        iter(strategy.experimental_distribute_dataset([np.ones((examples, 4), np.float32)]))
    )
    assert float(strategy.run(step, args=(batch,)).values[3]) == examples * 4 * 10


def test_a_loop_that_reads_the_replicas_number_is_whole_on_each_device() -> None:
    results = []
    for strategy in (split(), unsplit()):
        with strategy.scope():
            w = dl.Variable(np.arange(32, dtype=np.float32).reshape(4, 8), name="w1")

        def step(x: jax.Array, w: dl.Variable = w) -> jax.Array:
            context = dl.get_replica_context()
            number = context.replica_id_in_sync_group

            def add(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
                return carry + number * (x @ w).sum(), None

            w.assign_add(context.all_reduce("SUM", x.T @ x @ w))
            return jax.lax.scan(add, jnp.zeros(()), None, length=2)[0]

        data = [np.arange(20, dtype=np.float32).reshape(5, 4) % 3]
        batch = next(iter(strategy.experimental_distribute_dataset(data)))
        outputs = strategy.run(step, args=(batch,)).values
        results.append(([float(one) for one in outputs], np.asarray(w).tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("examples", [8, 5])
def test_a_branch_of_some_replicas_holds_no_collective(examples: int) -> None:
    """XLA would shift the columns by a collective of all devices, and abort after 40 s."""
    strategy = split()
    with strategy.scope():
        w = dl.Variable(np.arange(32, dtype=np.float32).reshape(4, 8), name="w1")

    def rolled() -> jax.Array:
        moved = jax.lax.with_sharding_constraint(jnp.roll(w.value(), 1, axis=1), P("model"))
        return jax.lax.with_sharding_constraint(moved, P(None, "model"))[0, 0]

    def step(x: jax.Array) -> jax.Array:
        w.assign_add(dl.get_replica_context().all_reduce("SUM", x.sum()) * jnp.ones((4, 8)))
        first = dl.get_replica_context().replica_id_in_sync_group == 0
        return jax.lax.cond(first, rolled, lambda: w.value()[0, 0])

    data = [np.ones((examples, 2), np.float32)]
    (batch,) = strategy.experimental_distribute_dataset(data)
    outputs = [float(one) for one in strategy.run(step, args=(batch,)).values]
    assert outputs == [2 * examples + 7.0, *[2.0 * examples] * 3]
    assert parts(w) == {(4, 4)}


def test_layouts_outlive_what_is_done_from_outside(tmp_path: Path) -> None:
    strategy = split()
    with strategy.scope():
        w = dl.Variable(START["w1"], name="w1")
    held = {piece.device.id: piece.data.shape for piece in w.value().addressable_shards}
    assert held == {0: (64, 128), 1: (64, 128)}
    checkpoint = dl.train.Checkpoint(w=w)
    path = checkpoint.save(str(tmp_path / "model"))
    copied = copy.deepcopy(w)
    w.values[1].assign(START["w1"] + 1)
    assert [float(one[0, 0]) for one in w.values] == pytest.approx(
        [START["w1"][0, 0] + (replica == 1) for replica in range(4)]
    )
    w.assign(START["w1"] * 2)
    w.assign_add(START["w1"])
    np.testing.assert_array_equal(np.asarray(w), START["w1"] * 2 + START["w1"])
    checkpoint.restore(path)
    for variable in (w, copied):
        np.testing.assert_array_equal(np.asarray(variable), START["w1"])
        assert {one.data.shape for one in variable.storage.alive().addressable_shards} == {
            (64, 128)
        }
    with unsplit().scope():
        whole = dl.Variable(START["w1"] * 0, name="w1")
    dl.train.Checkpoint(w=whole).restore(path)
    np.testing.assert_array_equal(np.asarray(whole), START["w1"])


def test_what_replicas_computed_has_a_component_each() -> None:
    strategy = split()
    context = dl.get_replica_context
    numbers = strategy.run(lambda: jnp.ones((1, 2)) * context().replica_id_in_sync_group)
    assert [one.tolist() for one in numbers.values] == [[[n, n]] for n in range(4)]
    assert strategy.reduce("SUM", numbers, axis=None).tolist() == [[6, 6]]
    assert strategy.reduce("MEAN", numbers, axis=0).tolist() == [1.5, 1.5]
    gathered = [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert strategy.gather(numbers, axis=0).tolist() == gathered
    rows = jax.device_put(np.arange(8), strategy.mesh.split)
    assert [int(one) for one in strategy.run(jnp.sum, args=(rows,)).values] == [1, 5, 9, 13]
    with pytest.raises(dl.errors.ValueShapeError, match="all components of a per-replica value"):
        strategy.run(jnp.sum, args=(numbers.stacked,))
    inside = strategy.run(lambda x: context().all_gather(x, 0), args=(numbers,))
    assert inside.values[2].tolist() == gathered


@pytest.mark.parametrize("examples", [16, 7])
def test_one_replica_may_have_all_devices(examples: int) -> None:
    strategy = dl.MirroredStrategy(model_axis=8, layouts=LAYOUTS)
    data = [tuple(part[:examples] for part in one) for one in DATA[:3]]
    expected = Training(dl.MirroredStrategy(["CPU:0"])).losses(data)
    training = Training(strategy)
    assert training.losses(data) == pytest.approx(expected, abs=2.4e-7)
    assert parts(training.weights["w2"]) == {(32, 10)}


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        ((4, 5), (None, "model"), r"dimension 1 of w \[4, 5\] is 5"),
        ((4, 6), (None, "data"), r'has "model" or None for each dimension, got \[None, .data.\]'),
        ((4,), (None, "model"), "for w of 1 dimensions"),
        ((4, 4), ("model", "model"), "divides one dimension"),
    ],
)
def test_layouts_that_cannot_be_are_refused(shape: Any, layout: Any, message: str) -> None:
    with split().scope(), pytest.raises(dl.errors.ShardingError, match=message):
        dl.Variable(np.zeros(shape, np.float32), name="w", layout=layout)


def test_a_name_that_two_patterns_find_is_refused() -> None:
    strategy = dl.MirroredStrategy(model_axis=2, layouts={"w": ("model",), "w1": (None, "model")})
    with strategy.scope(), pytest.raises(dl.errors.ShardingError, match=r"matches .'w', 'w1'"):
        dl.Variable(START["w1"], name="dense/w1")


@pytest.mark.parametrize("size", [3, 0, 16, True])
def test_a_model_axis_divides_the_number_of_devices(size: Any) -> None:
    with pytest.raises(dl.errors.DeviceError, match="must divide the number of devices"):
        dl.MirroredStrategy(model_axis=size)


def pairs_of_cores() -> dl.tpu.DeviceAssignment:
    topology = dl.tpu.Topology()
    return dl.tpu.DeviceAssignment.build(topology, num_replicas=4, computation_shape=[1, 1, 1, 2])


def test_a_tpu_replica_of_two_cores_computes_as_of_one() -> None:
    strategy = dl.TPUStrategy(experimental_device_assignment=pairs_of_cores(), layouts=LAYOUTS)
    assert (strategy.num_replicas_in_sync, strategy.device_assignment.num_cores_per_replica) == (
        4,
        2,
    )
    training = Training(strategy)
    assert training.losses(DATA[:2]) == pytest.approx(
        Training(unsplit()).losses(DATA[:2]), abs=2.4e-7
    )
    assert parts(training.weights["w2"]) == {(128, 10)}


@pytest.mark.parametrize(
    ("dimensions", "collectives"),
    [
        ([4, 1], [("all-gather", 4, 256)]),
        ([1, 4], [("all-reduce", 4, 1024)]),
        ([2, 2], [("all-gather", 2, 512), ("all-reduce", 2, 512)]),
    ],
)
def test_a_split_divides_work_over_logical_devices(
    dimensions: list[int], collectives: list[tuple[str, int, int]]
) -> None:
    topology = dl.tpu.Topology()
    build = dl.tpu.DeviceAssignment.build
    assignment = build(topology, num_replicas=2, computation_shape=[1, 2, 2, 1])
    strategy = dl.TPUStrategy(experimental_device_assignment=assignment)
    weights = np.ones((16, 16), np.float32)

    def step(x: jax.Array) -> jax.Array:
        x = strategy.experimental_split_to_logical_devices(x, dimensions)
        return strategy.experimental_replicate_to_logical_devices(jnp.sin(x) @ weights)

    x = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 99
    with listening() as heard:
        for rows in (32, 26):  # which 4 parts do not divide
            (batch,) = strategy.experimental_distribute_dataset([x[:rows]])
            result = strategy.gather(strategy.run(step, args=(batch,)), axis=0)
            np.testing.assert_allclose(result, np.sin(x[:rows]) @ weights, rtol=1e-5)
    compiled, _ = heard.of(events.Compile)
    found = sorted((one.kind, one.group, one.operand_bytes) for one in compiled.collectives)
    assert found == collectives
    assert strategy.experimental_assign_to_logical_device(x, 3) is x


def test_blocks_of_a_grid_are_assigned_in_its_order() -> None:
    topology = dl.tpu.Topology()
    topology.mesh_shape = (2, 2, 1, 2)  # as chips of two cores report it
    grid = np.stack(np.unravel_index(np.arange(8), topology.mesh_shape), axis=1)
    topology.device_coordinates = grid
    build = dl.tpu.DeviceAssignment.build
    chips = build(topology, num_replicas=4, computation_shape=[1, 1, 1, 2])
    assert [one.id for one in chips.devices] == [0, 1, 4, 5, 2, 3, 6, 7]
    apart = build(topology, 4, computation_shape=[2, 1, 1, 1], computation_stride=[1, 1, 1, 1])
    assert apart.coordinates(1, 1) == (1, 0, 0, 1)
    with pytest.raises(dl.errors.DeviceError, match="between 1 and 2, as 8 devices"):
        build(topology, num_replicas=3, computation_shape=[2, 2, 1, 1])
    with pytest.raises(dl.errors.OptionError, match="a number for x, y, z"):
        build(topology, computation_shape=[2, 2])


@pytest.mark.parametrize("layout", [(None, "model"), ()])
def test_advice_says_where_an_axis_divides_no_work(layout: Any) -> None:
    with listening() as heard:
        strategy = dl.MirroredStrategy(model_axis=2)
        with strategy.scope():
            w = dl.Variable(np.ones((256, 512), np.float32), name="w", layout=layout)
        (x,) = strategy.experimental_distribute_dataset([np.ones((64, 256), np.float32)])
        for _ in range(20):
            strategy.run(lambda x: jnp.tanh(x @ w).sum(), args=(x,))
    (compiled,) = heard.of(events.Compile)
    assert compiled.computed_times == pytest.approx(1 if layout else 2, rel=0.05)
    assert [one.cause for one in advise(heard.events)] == ([] if layout else ["repeated_work"])


def test_pages_name_replicas_by_their_devices(
    trained: tuple[Training, list[float], Listener],
) -> None:
    _, _, heard = trained
    folds = Folds()
    folds.add([*heard.of(events.Strategy), *heard.of(events.Sharding)])
    header = folds.columns("header")
    replicas = ["CPU:0-CPU:1", "CPU:2-CPU:3", "CPU:4-CPU:5", "CPU:6-CPU:7"]
    assert (header["replicas"], len(header["places"])) == (replicas, 8)
    facts = run_facts(header, live=True, caught_up=True, read_share=None, name="")
    assert facts["strategy"] == "MirroredStrategy, 4 replicas of 2 devices"
    batch = folds.batch(STEPS - 1)
    assert batch is not None
    assert (batch["replica"], batch["size"]) == (replicas, [16] * 4)

"""Flax NNX objects in the arguments of `run` are updated in place, as `nnx.jit` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.errors
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import distlab as dl
from distlab import events
from distlab.errors import StructureError
from tests.listening import listening

REPLICAS = 4
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(14, 6)).astype(np.float32)
LABELS = (DATA.sum(1) > 0).astype(np.int32)
BATCH = 8
"""Batches of 8 and 6 examples: the last one leaves a replica without any."""


@pytest.fixture(scope="module")
def strategy() -> dl.Strategy:
    return made_strategy()


def made_strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


def batches(strategy: dl.Strategy | None = None) -> Any:
    dataset = dl.data.Dataset.from_tensor_slices((DATA, LABELS)).batch(BATCH)
    return dataset if strategy is None else strategy.experimental_distribute_dataset(dataset)


class Net(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(6, 4, rngs=rngs)
        self.second = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(nnx.relu(self.first(x)))


def made() -> tuple[Net, nnx.Optimizer[Net], nnx.MultiMetric]:
    model = Net(rngs=nnx.Rngs(0))
    metrics: Any = nnx.MultiMetric
    return (
        model,
        nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param),
        metrics(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("losses")),
    )


def loss_fn(model: Net, x: Any, y: Any) -> tuple[jax.Array, Any]:
    logits = model(x)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
    return losses.sum() / BATCH, (losses, logits)


def train_step(model: Net, optimizer: Any, metrics: Any, batch: Any) -> jax.Array:
    x, y = batch
    (loss, (losses, logits)), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, x, y)
    loss, grads = dl.get_replica_context().all_reduce("SUM", (loss, grads))
    optimizer.update(model, grads)
    metrics.update(losses=losses, logits=logits, labels=jnp.asarray(y))
    return loss


def test_a_model_its_optimizer_and_metrics_train_as_with_nnx_jit(strategy: dl.Strategy) -> None:
    alone, mine = made(), made()
    metrics: Any = mine[2]
    jitted: Any = nnx.jit(train_step)
    for _ in range(2):
        for one, distributed in zip(batches(), batches(strategy), strict=True):
            expected = jitted(*alone, one)
            result = strategy.run(train_step, args=(*mine, distributed))
            np.testing.assert_allclose(result.values[1], expected, rtol=1e-4)
    for a, b in zip(jax.tree.leaves(mine[:2]), jax.tree.leaves(alone[:2]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert int(mine[1].step[...]) == 4
    for name, value in alone[2].compute().items():
        assert float(mine[2].compute()[name]) == pytest.approx(float(value), rel=1e-5)
    assert int(metrics.loss.count[...]) == 2 * len(DATA)


def test_eagerly_a_model_trains_as_compiled() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    data = dl.data.Dataset.from_tensor_slices(DATA[:3]).batch(3)
    (x,) = strategy.experimental_distribute_dataset(data)

    def step(model: nnx.Linear, metric: Any, x: jax.Array) -> None:
        kernel = model.kernel
        kernel[...] -= dl.get_replica_context().all_reduce("SUM", x.T @ model(x))
        metric.update(values=x)

    kernels = []
    for eagerly in (False, True):
        model, metric = nnx.Linear(6, 2, rngs=nnx.Rngs(0)), nnx.metrics.Average()
        options = dl.RunOptions(run_eagerly=eagerly)
        strategy.run(step, args=(model, metric, x), options=options)
        kernels.append(np.asarray(model.kernel[...]))
        assert float(metric.compute()) == pytest.approx(DATA[:3].mean(), abs=1e-6)
    np.testing.assert_allclose(kernels[0], kernels[1], rtol=1e-5)


def test_a_state_is_one_mirrored_array_and_compiles_once() -> None:
    strategy, objects = made_strategy(), made()
    batch = next(iter(batches(strategy)))
    with listening() as heard:
        for _ in range(3):
            strategy.run(train_step, args=(*objects, batch))
    (compiled,) = heard.of(events.Compile)
    assert compiled.function == "train_step"
    assert "model.first.kernel: float32[6, 4]" in compiled.arguments
    assert "optimizer.opt_state[0].trace.first.kernel: float32[6, 4]" in compiled.arguments
    for leaf in jax.tree.leaves(objects):
        assert leaf.sharding == strategy.mesh.whole


def test_forgotten_all_reduce_is_an_error_and_changes_nothing(
    strategy: dl.Strategy, eager: bool
) -> None:
    model, steps = nnx.Linear(6, 2, rngs=nnx.Rngs(0)), nnx.Variable(jnp.zeros(()))
    before = np.asarray(model.kernel[...])

    def forgetful(model: nnx.Linear, steps: Any, x: Any, reduced: bool) -> None:
        gradient = x.T @ model(x)
        if reduced:
            gradient = dl.get_replica_context().all_reduce("SUM", gradient)
        model.kernel[...] -= gradient
        steps[...] += 1

    x, _ = next(iter(batches(strategy)))
    why = "replica 1 has" if eager else "depends on x without an all-reduce"
    with pytest.raises(StructureError, match=rf"model\.kernel is changed in place.*{why}"):
        strategy.run(forgetful, args=(model, steps, x, False))
    np.testing.assert_array_equal(model.kernel[...], before)
    assert float(steps[...]) == 0
    strategy.run(forgetful, args=(model, steps, x, True))
    assert not np.allclose(model.kernel[...], before)
    assert float(steps[...]) == 1


@flax.struct.dataclass
class Held:
    model: Any
    extra: Any


@pytest.mark.usefixtures("eager")
def test_one_object_in_several_places_stays_one(strategy: dl.Strategy) -> None:
    counter, other = nnx.Variable(jnp.zeros(2)), nnx.Variable(jnp.ones(()))

    def step(held: Held, parts: Any, *, named: Any) -> Any:
        assert held.model is parts["again"][0] is named
        named[...] += 1
        held.extra[0][...] *= 2
        return held.model[...].sum(), named

    total, same = strategy.run(
        step,
        args=(Held(counter, [other]), {"again": (counter,), "x": 1.0}),
        kwargs={"named": counter},
    )
    assert same is counter
    assert counter[...].tolist() == [1.0, 1.0]
    assert float(other[...]) == 2.0
    assert [float(n) for n in total.values] == [2.0] * REPLICAS


def test_each_replica_draws_its_own_numbers_and_again_the_same(strategy: dl.Strategy) -> None:
    def draw(rngs: nnx.Rngs) -> jax.Array:
        return rngs.dropout.uniform((2,))

    def drawn() -> list[list[float]]:
        rngs = nnx.Rngs(dropout=7)
        rows = [strategy.run(draw, args=(rngs,)) for _ in range(2)]
        assert int(rngs.dropout.count[...]) == 2
        assert rngs.dropout.key[...] == nnx.Rngs(dropout=7).dropout.key[...]
        return [[float(part[0]) for part in row.values] for row in rows]

    first, second = drawn()
    assert len({*first, *second}) == 2 * REPLICAS
    assert drawn() == [first, second]
    key = jax.random.fold_in(jax.random.key(7), 2)
    assert first[2] == float(jax.random.uniform(jax.random.fold_in(key, 0), (2,))[0])


def _applied(drop: nnx.Dropout, x: jax.Array) -> jax.Array:
    return drop(x)


WITHIN: dict[str, Callable[[nnx.Dropout, jax.Array], jax.Array]] = {
    "jit": nnx.jit(_applied),
    "scan": lambda drop, x: nnx.scan(
        lambda drop, x: (drop, drop(x)), in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0)
    )(drop, x[None])[1][0],
}


@pytest.mark.parametrize(("name", "eagerly"), [("scan", False), ("jit", True)])
def test_a_stream_goes_through_transformations_of_nnx_unchanged(
    strategy: dl.Strategy, name: str, eagerly: bool
) -> None:
    drop, plain = (nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=7)) for _ in range(2))
    options = dl.RunOptions(run_eagerly=eagerly)
    x = jnp.ones(16)
    for _ in range(2):
        found = strategy.run(WITHIN[name], args=(drop, x), options=options)
        expected = strategy.run(_applied, args=(plain, x))
        np.testing.assert_array_equal(found.values, expected.values)
    assert len({str(value) for value in found.values}) == REPLICAS
    assert drop.rngs.key[...] == nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=7)).rngs.key[...]
    assert drop.rngs.count[...] == 2


def test_one_replica_draws_as_nnx_jit() -> None:
    def draw(rngs: nnx.Rngs) -> jax.Array:
        return rngs.uniform(())

    alone: Any = nnx.jit(draw)
    expected = float(alone(nnx.Rngs(3)))
    for strategy in (dl.OneDeviceStrategy("CPU:1"), dl.get_strategy()):
        rngs = nnx.Rngs(3)
        assert float(strategy.run(draw, args=(rngs,))) == expected
        assert int(rngs.default.count[...]) == 1


def test_metrics_go_on_across_resets_and_steps_that_only_read(strategy: dl.Strategy) -> None:
    metric = nnx.metrics.Average()

    def step(metric: Any, x: Any, reset: bool) -> None:
        if reset:
            metric.reset()
        metric.update(values=x)

    x = next(
        iter(
            strategy.experimental_distribute_dataset(
                dl.data.Dataset.from_tensor_slices(np.arange(3, dtype=np.float32)).batch(3)
            )
        )
    )
    strategy.run(step, args=(metric, x, False))
    strategy.run(step, args=(metric, x, False))
    assert (float(metric.total[...]), int(metric.count[...])) == (6.0, 6)
    strategy.run(lambda metric: metric.compute(), args=(metric,))
    assert (float(metric.total[...]), int(metric.count[...])) == (6.0, 6)
    strategy.run(step, args=(metric, x, True))
    assert (float(metric.total[...]), int(metric.count[...])) == (3.0, 3)
    metric.reset()
    assert int(metric.count[...]) == 0


def test_running_statistics_are_the_mean_over_examples(strategy: dl.Strategy) -> None:
    norm = nnx.BatchNorm(6, momentum=0.0, rngs=nnx.Rngs(0))
    strategy.run(lambda norm, x, _: norm(x).sum(), args=(norm, *list(batches(strategy))[-1]))
    np.testing.assert_allclose(norm.mean[...], DATA[8:].mean(0), atol=1e-6)
    assert np.isfinite(norm.var[...]).all()


def test_a_step_that_changes_what_objects_consist_of_is_refused(strategy: dl.Strategy) -> None:
    def grows(model: Any) -> None:
        model.extra = nnx.Param(jnp.zeros(1))

    model = Net(rngs=nnx.Rngs(0))
    with pytest.raises(StructureError, match="what they consist of"):
        strategy.run(grows, args=(model,))
    assert not hasattr(model, "extra")


def test_train_and_eval_are_different_programs(strategy: dl.Strategy) -> None:
    drop: Any = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

    def apply(drop: nnx.Dropout) -> jax.Array:
        return drop(jnp.ones(64))

    assert 0 in np.asarray(strategy.run(apply, args=(drop,)).values[0])
    drop.eval()
    assert 0 not in np.asarray(strategy.run(apply, args=(drop,)).values[0])
    drop.train()
    assert 0 in np.asarray(strategy.run(apply, args=(drop,)).values[3])


def test_a_donated_model_gives_its_memory_to_the_new_one(strategy: dl.Strategy) -> None:
    objects = made()
    batch = next(iter(batches(strategy)))
    strategy.run(train_step, args=(*objects, batch))
    model, moments = objects[0].first.kernel[...], objects[1].step[...]
    strategy.run(train_step, args=(*objects, batch), options=dl.RunOptions(donate_argnums=(0,)))
    assert model.is_deleted()
    assert not moments.is_deleted()
    assert int(objects[1].step[...]) == 2


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.calls = nnx.Variable(jnp.zeros(()))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.calls[...] = self.calls[...] + 1
        return x.sum()


def by_nnx_scan(model: Counter, rows: jax.Array) -> Any:
    def body(carry: Any, row: jax.Array) -> Any:
        model, total = carry
        return model, total + model(row)

    scanned = nnx.scan(body, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    return scanned((model, jnp.zeros(())), rows)[1]


def test_a_scan_that_carries_a_model_changes_it(strategy: dl.Strategy) -> None:
    model = Counter()
    totals = strategy.run(by_nnx_scan, args=(model, jnp.ones((3, 4))))
    assert [float(one) for one in strategy.experimental_local_results(totals)] == [12] * REPLICAS
    assert model.calls[...] == 3

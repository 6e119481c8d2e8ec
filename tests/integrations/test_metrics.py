"""`dl.metrics`: what replicas add up is what one device computes of all examples."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
)
from distlab.events import Compile
from distlab.recording import RingRecorder

MultiMetric: Any = nnx.MultiMetric
NUMBERS = np.linspace(-3, 7, 40, dtype=np.float32)
LOGITS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, 40)


def mirrored(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy(jax.devices()[:replicas])


def batches_of(strategy: dl.Strategy, arrays: Any, batch: int) -> Any:
    dataset = dl.data.Dataset.from_tensor_slices(arrays).batch(batch)
    return strategy.experimental_distribute_dataset(dataset)


DIVISIONS = [(1, 5, 8), (7, 5, 3), (12, 12, 5)]
"""Numbers of examples, batch sizes and replicas, some of which have no example."""


@pytest.mark.parametrize(("examples", "batch", "replicas"), DIVISIONS)
def test_any_division_gives_the_mean_of_one_device(
    examples: int, batch: int, replicas: int
) -> None:
    strategy = mirrored(replicas)
    with strategy.scope():
        mean, outside = dl.metrics.Mean(), dl.metrics.Mean()

    def step(numbers: jax.Array) -> jax.Array:
        mean.update_state(numbers)
        return numbers * 2

    for part in batches_of(strategy, NUMBERS[:examples], batch):
        outside.update_state(strategy.run(step, args=(part,)))
    expected = NUMBERS[:examples].mean()
    assert float(mean.result()) == pytest.approx(expected, abs=1e-5)
    assert float(outside.result()) == pytest.approx(2 * expected, abs=1e-5)
    assert int(mean.variables[0]) == examples


@pytest.mark.parametrize(("examples", "batch", "replicas"), DIVISIONS)
def test_any_division_gives_the_accuracy_of_one_device(
    examples: int, batch: int, replicas: int
) -> None:
    strategy = mirrored(replicas)
    mask = np.arange(examples) % 3 > 0
    with strategy.scope():
        accuracy, masked = dl.metrics.Accuracy(), dl.metrics.Accuracy()

    def step(labels: jax.Array, logits: jax.Array, kept: jax.Array) -> None:
        accuracy.update_state(labels, logits)
        masked.update_state(labels, logits, mask=kept)

    columns = (LABELS[:examples], LOGITS[:examples], mask)
    for part in batches_of(strategy, columns, batch):
        strategy.run(step, args=part)
    right = LOGITS[:examples].argmax(-1) == LABELS[:examples]
    assert float(accuracy.result()) == pytest.approx(right.mean())
    expected = right[mask].mean() if mask.any() else math.nan
    assert float(masked.result()) == pytest.approx(expected, nan_ok=True)


def test_several_metrics_at_once_are_those_of_flax(eager: bool) -> None:
    strategy = mirrored(3)
    metric = MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy(0.5))
    with strategy.scope():
        ours = dl.metrics.Metric(metric)
    scores, truth = jnp.asarray(LOGITS[:, 0]), jnp.asarray(LABELS > 0, jnp.int32)

    def step(scores: jax.Array, truth: jax.Array) -> None:
        ours.update_state(loss=scores**2, logits=scores, labels=truth)

    for part in batches_of(strategy, (scores, truth), 7):
        strategy.run(step, args=part)
    metric.update(loss=scores**2, logits=scores, labels=truth)
    alone, together = metric.compute(), ours.result()
    assert sorted(together) == ["accuracy", "loss"]
    for name, value in alone.items():
        assert float(together[name]) == pytest.approx(float(value), rel=1e-6)


def test_a_metric_starts_again_after_reset_state() -> None:
    strategy = mirrored(4)
    with strategy.scope():
        mean = dl.metrics.Mean()
    strategy.run(lambda: mean.update_state(jnp.ones(2)))
    mean.reset_state()
    assert math.isnan(float(mean.result()))
    assert [float(copy) for copy in mean.variables[1].values] == [0.0] * 4
    strategy.run(lambda: mean.update_state(jnp.full(3, 5.0)))
    assert float(mean.result()) == 5.0
    assert int(mean.variables[0]) == 12


def test_an_array_outside_of_run_counts_once() -> None:
    strategy = mirrored(4)
    with strategy.scope():
        mean = dl.metrics.Mean()
    mean.update_state([1.0, 2.0, 3.0])
    mean.update_state(9.0)
    assert (int(mean.variables[0]), float(mean.result())) == (4, 3.75)
    total = strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", jnp.ones(2)))
    same = strategy.experimental_local_results(total)[0]
    mean.update_state(same)
    assert int(mean.variables[0]) == 6
    with strategy.scope():
        mean.update_state(same)
    assert int(mean.variables[0]) == 8
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.full(1, float(context.replica_id_in_sync_group))
    )
    mean.update_state(parts, mask=jax.tree.map(lambda row: row > 2, parts))
    assert int(mean.variables[0]) == 9


def test_a_replica_that_reads_the_result_sees_its_own_part() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean = dl.metrics.Mean()

    def step() -> Any:
        place = dl.get_replica_context().replica_id_in_sync_group
        mean.update_state(jnp.full(2, 1.0) * place)
        return mean.result()

    assert [float(part) for part in strategy.experimental_local_results(strategy.run(step))] == [
        0.0,
        1.0,
    ]
    assert float(mean.result()) == 0.5


def test_a_step_may_make_its_metrics_in_its_first_call() -> None:
    strategy = mirrored(3)
    made: list[dl.metrics.Metric] = []

    def step(numbers: jax.Array) -> None:
        if not made:
            made.append(dl.metrics.Mean())
        made[0].update_state(values=numbers)

    for _ in range(2):
        for part in batches_of(strategy, NUMBERS[:7], 7):
            strategy.run(step, args=(part,))
    assert float(made[0].result()) == pytest.approx(NUMBERS[:7].mean(), rel=1e-6)
    assert int(made[0].variables[0]) == 14


@pytest.mark.parametrize("make", [dl.OneDeviceStrategy, None])
def test_a_metric_needs_no_replicas(make: Any) -> None:
    strategy = make("CPU:1") if make else dl.get_strategy()
    with strategy.scope():
        accuracy = dl.metrics.Accuracy()
    strategy.run(lambda: accuracy.update_state(jnp.array([0, 1]), jnp.eye(2)))
    accuracy.update_state(np.array([1, 1]), np.eye(2, dtype=np.float32))
    assert float(accuracy.result()) == 0.75


def test_a_step_with_metrics_compiles_once(recorder: RingRecorder) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean, outside = dl.metrics.Mean(), dl.metrics.Mean()

    def step(numbers: jax.Array) -> jax.Array:
        mean.update_state(numbers)
        return numbers

    for part in batches_of(strategy, NUMBERS, 8):
        outside.update_state(strategy.run(step, args=(part,)))
    mean.reset_state()
    for part in batches_of(strategy, NUMBERS, 8):
        outside.update_state(strategy.run(step, args=(part,)))
    compiled = [e.function for e in recorder.ring.since(0).events if isinstance(e, Compile)]
    assert len(compiled) == len(set(compiled)) == 2


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.bool_])
def test_values_of_any_dtype_are_added_up_in_single_precision(dtype: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean = dl.metrics.Mean()
    values = (jnp.arange(2_000) > 0).astype(dtype)

    def step() -> jax.Array:
        mean.update_state(values)
        return values * jnp.ones((), dtype)

    mean.update_state(strategy.run(step))
    mean.update_state(values)
    assert (int(mean.variables[0]), float(mean.variables[1])) == (10_000, 9_995)


def test_metrics_add_up_inside_scan() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean = dl.metrics.Mean()

    def step(rows: jax.Array) -> None:
        def body(_: None, row: jax.Array) -> tuple[None, None]:
            mean.update_state(row)
            return None, None

        dl.scan(body, None, rows)

    for part in batches_of(strategy, NUMBERS.reshape(10, 4), 10):
        strategy.run(step, args=(part,))
    assert float(mean.result()) == pytest.approx(NUMBERS.mean(), rel=1e-6)


def test_variables_have_the_metrics_name() -> None:
    with mirrored(2).scope():
        mean = dl.metrics.Mean("loss")
    assert [variable.name for variable in mean.variables] == ["loss/count", "loss/total"]
    assert repr(mean) == "<Mean loss>"
    assert not any(variable.trainable for variable in mean.variables)


class Shifted(nnx.metrics.Average):
    """An average that does not start from zeros."""

    def reset(self) -> None:
        super().reset()
        self.total[...] = jnp.array(1.0)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: dl.metrics.Metric(nnx.metrics.Welford()), ArgumentTypeError, "nnx.metrics.Avera"),
        (lambda: dl.metrics.Metric(Shifted()), ArgumentValueError, "starts from zeros"),
        (
            lambda: dl.metrics.Mean().update_state(jnp.ones(2), mask=jnp.array([0.5, 1.0])),
            ArgumentTypeError,
            "by booleans, got float32",
        ),
        (
            lambda: dl.metrics.Accuracy().update_state(jnp.array([1]), jnp.array([0.5])),
            ValueError,
            r"update_state takes labels, then logits",
        ),
    ],
)
def test_bad_input_is_refused(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_two_means_make_a_weighted_one() -> None:
    strategy = mirrored(3)
    with strategy.scope():
        products, weights = dl.metrics.Mean(), dl.metrics.Mean()

    def step(x: jax.Array, w: jax.Array) -> None:
        products.update_state(x * w)
        weights.update_state(w)

    factors = NUMBERS[:7] ** 2
    for batch in batches_of(strategy, (NUMBERS[:7], factors), 4):
        strategy.run(step, args=batch)
    weighted = float(products.result()) / float(weights.result())
    assert weighted == pytest.approx(float(np.average(NUMBERS[:7], weights=factors)), abs=1e-5)


def test_accuracy_takes_labels_of_any_dtype() -> None:
    accuracy = dl.metrics.Accuracy(0.5)
    for dtype in ("uint8", "bool"):
        accuracy.update_state((LABELS % 2).astype(dtype), LOGITS[:, 0])
    share = (LOGITS[:, 0] >= 0.5) == LABELS % 2
    assert float(accuracy.result()) == pytest.approx(share.mean(), abs=1e-6)


def test_without_examples_the_result_is_nan_where_keras_has_zero() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean, accuracy = dl.metrics.Mean(), dl.metrics.Accuracy()
    assert math.isnan(float(mean.result()))
    assert math.isnan(float(accuracy.result()))
    strategy.run(lambda: mean.update_state(jnp.zeros(0)))
    assert math.isnan(float(mean.result()))


def test_parts_and_arrays_for_all_are_not_mixed() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        mean = dl.metrics.Mean()
    parts = strategy.run(lambda: jnp.ones(2) * dl.get_replica_context().replica_id_in_sync_group)
    with pytest.raises(ArgumentTypeError, match="some values per replica and others"):
        mean.update_state(parts, mask=np.array([True, True]))
    assert int(mean.variables[0]) == 0


def test_metrics_work_under_transfer_guards_and_strict_promotion() -> None:
    values, mask = jnp.arange(4), jnp.array([True, True, False, True])
    with jax.transfer_guard("disallow"), jax.numpy_dtype_promotion("strict"):
        mean, accuracy = dl.metrics.Mean(), dl.metrics.Accuracy()
        mean.update_state(values, mask=mask)
        accuracy.update_state(values, values[:, None] == values, mask=mask)
        results = mean.result(), accuracy.result()
    assert [round(float(one), 4) for one in results] == [round(4 / 3, 4), 1.0]

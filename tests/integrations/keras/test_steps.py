"""Numbers of a model made in a strategy's scope, beyond the goldens."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import distlab as dl
from distlab.integrations.keras.held import held_of
from distlab.step.ragged.programs import RaggedPrograms
from tests.integrations.keras.small import FIT, RANDOM, X, Y, mirrored, model

HALVES = 2e-6


@pytest.fixture
def by_examples() -> Any:
    dl.keras.weigh_by("examples")
    yield
    dl.keras.weigh_by("replicas")


def test_weighed_by_examples_the_numbers_are_those_of_one_device(
    by_examples: None,
) -> None:
    def made() -> Any:
        clipped = keras.optimizers.SGD(0.5, global_clipnorm=0.1)
        return model(layers.BatchNormalization(), optimizer=clipped)

    alone = made().fit(X, Y, epochs=2, validation_data=(X[:5], Y[:5]), **FIT).history
    with mirrored(3).scope():
        distributed = made()
    history = distributed.fit(X, Y, epochs=2, validation_data=(X[:5], Y[:5]), **FIT).history
    for name, values in alone.items():
        np.testing.assert_allclose(history[name], values, rtol=0, atol=HALVES, err_msg=name)


def test_replicas_without_examples_change_nothing_to_nan() -> None:
    with mirrored(8).scope():
        distributed = model(layers.BatchNormalization(), layers.Dropout(0.5), optimizer="adam")
    history = distributed.fit(X[:5], Y[:5], epochs=2, validation_data=(X[:3], Y[:3]), **FIT).history
    assert all(np.isfinite(values).all() for values in history.values())
    assert all(np.isfinite(weight).all() for weight in distributed.get_weights())


def test_a_replica_without_examples_adds_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    compile_all = RaggedPrograms.compile

    def counting(self: RaggedPrograms) -> RaggedPrograms:
        compiled = compile_all(self)
        counts.append(len(compiled.programs))
        return compiled

    monkeypatch.setattr(RaggedPrograms, "compile", counting)
    with mirrored(4).scope():
        distributed = model(optimizer="adam")
    distributed.fit(X[:5], Y[:5], **FIT)
    assert counts == [4]  # of two examples, one and none, and one that combines and updates


def test_even_batches_have_one_devices_numbers_on_every_strategy() -> None:
    def losses(strategy: dl.Strategy) -> list[float]:
        seen: list[float] = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda _, logs: seen.append(float(logs["loss"]))
        )
        with strategy.scope():
            made = model()
        history = made.fit(X[:16], Y[:16], epochs=2, callbacks=[note], **FIT).history
        return [*seen, *history["loss"]]

    expected = losses(dl.get_strategy())
    for strategy in (dl.experimental.CentralStorageStrategy(jax.devices()[:4]), mirrored(4)):
        np.testing.assert_allclose(losses(strategy), expected, rtol=0, atol=HALVES)


def test_single_batches_are_divided_too() -> None:
    alone = model()
    with mirrored(2).scope():
        distributed = model()
    for verb in ("train_on_batch", "test_on_batch"):
        expected = getattr(alone, verb)(X[:6], Y[:6], return_dict=True)
        found = getattr(distributed, verb)(X[:6], Y[:6], return_dict=True)
        assert found == pytest.approx(expected, abs=HALVES)
    outputs = distributed.predict_on_batch(X[:5])
    np.testing.assert_allclose(outputs, alone.predict_on_batch(X[:5]), atol=HALVES)


def test_dropout_differs_between_replicas_and_their_seeds_do_not() -> None:
    strategy = mirrored(3)
    with strategy.scope():
        dropout = layers.Dropout(0.5, seed=1)
    state = dropout.seed_generator.state

    def step() -> Any:
        with keras.StatelessScope([(state, jnp.asarray(state.value))]) as scope:
            dropped = dropout(jnp.ones(30), training=True)
        return dropped, scope.get_current_value(state)

    dropped, seeds = strategy.run(step)
    assert len({tuple(row.tolist()) for row in dropped.values}) == 3
    assert len({tuple(seed.tolist()) for seed in seeds.values}) == 1


def test_half_precision_losses_are_scaled_and_accumulated() -> None:
    accumulated = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        alone = model(optimizer=keras.optimizers.SGD(0.1))
        with mirrored(2).scope():
            distributed = model(optimizer=accumulated)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(distributed.optimizer).__name__ == "LossScaleOptimizer"
    losses = distributed.fit(X[:16], Y[:16], epochs=2, **FIT).history["loss"]
    assert losses == pytest.approx(alone.fit(X[:16], Y[:16], epochs=2, **FIT).history["loss"], 0.05)
    assert losses[1] < losses[0]


class OwnStep(keras.Model):  # type: ignore[misc]
    """The custom train_step of Keras' guide for JAX, which logs its replica's number, too."""

    def compute_loss_and_updates(self, trainable: Any, others: Any, x: Any, y: Any) -> Any:
        outputs, others = self.stateless_call(trainable, others, x, training=True)
        return self.compute_loss(x, y, outputs), (outputs, others)

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, others, optimizer, metrics = state
        x, y = data
        gradient = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (loss, (outputs, others)), gradients = gradient(trainable, others, x, y)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        changed: list[Any] = []
        logs: dict[str, Any] = {}
        if self.distribute_strategy.num_replicas_in_sync > 1:
            number = dl.get_replica_context().replica_id_in_sync_group
            logs["nested"] = {"replica": number}
        for metric in self.metrics:
            counted = metrics[len(changed) :][: len(metric.variables)]
            seen = (loss,) if metric.name == "loss" else (y, outputs)
            counted = metric.stateless_update_state(counted, *seen)
            logs[metric.name] = metric.stateless_result(counted)
            changed += counted
        return logs, (trainable, others, optimizer, changed)


def with_own_step() -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    own = OwnStep(inputs, layers.Dense(2)(inputs))
    own.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return own


def test_a_train_step_of_ones_own_runs_on_each_replica() -> None:
    alone = with_own_step()
    with mirrored(2).scope():
        own = with_own_step()
    alone.fit(X[:16], X[:16, :2], **FIT)
    history = own.fit(X[:16], X[:16, :2], **FIT).history
    assert history["replica"] == [0.5]
    for found, expected in zip(own.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=HALVES)


def test_metrics_logged_by_a_train_step_are_of_all_examples(by_examples: None) -> None:
    alone = with_own_step().fit(X[:10], X[:10, :2], epochs=2, **FIT).history["mae"]
    with mirrored(3).scope():
        own = with_own_step()
    found = own.fit(X[:10], X[:10, :2], epochs=2, **FIT).history["mae"]
    assert found == pytest.approx(alone, abs=HALVES)


class Counts(keras.metrics.Metric):  # type: ignore[misc]
    """A metric with two results: the examples, and the replicas' mean of their largest class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.examples = self.add_variable((), initializer="zeros", name="examples")
        self.largest = self.add_variable((), initializer="zeros", aggregation="mean", name="large")

    def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
        self.examples.assign_add(outputs.shape[0])
        self.largest.assign(keras.ops.max(keras.ops.cast(y, "float32")))

    def result(self) -> Any:
        return {"examples": self.examples + 0, "largest": self.largest + 0}


def test_metrics_of_several_results_are_added_up_or_averaged() -> None:
    with mirrored(2).scope():
        network = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile("sgd", loss, metrics=[Counts(name="counts")])
    classes = np.array([0, 1, 2, 2] * 2)
    history = network.fit(X[:8], classes, validation_data=(X[:8], classes), **FIT).history
    assert history["examples"] == history["val_examples"] == [8]
    assert history["largest"] == [2]


def test_variables_of_layers_are_aggregated_as_they_declare() -> None:
    class Sizes(layers.Layer):  # type: ignore[misc]
        def build(self, _: Any) -> None:
            for kind in ("sum", "mean", "only_first_replica"):
                made = self.add_weight(initializer="zeros", trainable=False, aggregation=kind)
                setattr(self, kind, made)

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                for variable in (self.sum, self.mean, self.only_first_replica):
                    variable.assign(keras.ops.sum(x))
            return x

    with mirrored(2).scope():
        network = keras.Sequential([keras.Input((1,)), Sizes(), layers.Dense(1)])
        network.compile("sgd", "mse")
    numbers = np.array([[1.0], [2.0], [3.0], [4.0]])
    network.fit(numbers, numbers, batch_size=4, shuffle=False, verbose=0)
    network.evaluate(numbers, numbers, verbose=0)
    sizes = network.layers[0]
    found = [float(v.value) for v in (sizes.sum, sizes.mean, sizes.only_first_replica)]
    assert found == [10, 5, 3]


def test_weights_can_be_read_and_assigned_while_a_model_trains(tmp_path: Path) -> None:
    with mirrored(2).scope():
        distributed = model()
    seen = []

    def read_and_assign(batch: int, logs: Any) -> None:
        seen.append(distributed.get_weights()[0])
        if batch == 0:
            distributed.save(tmp_path / "first.keras")
            distributed.layers[0].kernel.assign(np.zeros((4, 6)))

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=read_and_assign)
    distributed.fit(X[:16], Y[:16], callbacks=[callback], **FIT)
    first = keras.models.load_model(tmp_path / "first.keras").get_weights()[0]
    np.testing.assert_array_equal(first, seen[0])
    assert np.abs(seen[1]).max() < 0.1 < np.abs(seen[0]).max()
    np.testing.assert_array_equal(distributed.get_weights()[0], seen[1])


def test_a_saved_model_goes_on_anywhere(tmp_path: Path) -> None:
    with mirrored(4).scope():
        distributed = model(optimizer="adam")
    distributed.fit(X[:16], Y[:16], **FIT)
    distributed.save(tmp_path / "model.keras")
    plain = keras.models.load_model(tmp_path / "model.keras")
    with mirrored(2).scope():
        other = keras.models.load_model(tmp_path / "model.keras")
    assert other.distribute_strategy.num_replicas_in_sync == 2
    losses = [m.fit(X[:16], Y[:16], **FIT).history["loss"] for m in (distributed, plain, other)]
    np.testing.assert_allclose(losses[1:], losses[:1] * 2, rtol=0, atol=HALVES)


def test_an_unbuilt_model_predicts() -> None:
    with mirrored(2).scope():
        network = keras.Sequential([layers.Dense(3)])
    outputs = network.predict(X, batch_size=8, verbose=0)
    np.testing.assert_allclose(outputs, network(X), rtol=0, atol=1e-5)


def test_a_frozen_base_stays_as_it_is() -> None:
    images, labels = RANDOM.rand(8, 6, 6, 1).astype("float32"), RANDOM.randint(0, 2, 8)
    with mirrored(2).scope():
        convolution = [layers.Conv2D(2, 3), layers.BatchNormalization(), layers.Flatten()]
        base = keras.Sequential([keras.Input((6, 6, 1)), *convolution])
        base.trainable = False
        inputs = keras.Input((6, 6, 1))
        network = keras.Model(inputs, layers.Dense(1)(base(inputs, training=False)))
        network.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    before, head = base.get_weights(), network.get_weights()[-1]
    network.fit(images, labels, batch_size=4, verbose=0)
    for old, new in zip(before, base.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert not np.array_equal(head, network.get_weights()[-1])


def test_a_layer_frozen_after_compile_raises_in_fit() -> None:
    with mirrored(2).scope():
        network = model()
    network.fit(X, Y, **FIT)
    loss = network.evaluate(X, Y, batch_size=8, verbose=0)
    network.layers[0].trainable = False
    assert network.evaluate(X, Y, batch_size=8, verbose=0) == loss
    # Keras' own errors, as without a scope.
    with pytest.raises(ValueError, match=r"optimizer_variables|Invalid variable value"):
        network.fit(X, Y, **FIT)


def test_nothing_holds_the_weights_of_the_epoch_before() -> None:
    with mirrored(2).scope():
        trained = model()
    trained.fit(X, Y, **FIT)
    arrays = [held_of(v).variable.storage.array for v in trained.trainable_variables]  # type: ignore[union-attr]
    before = [weakref.ref(array) for array in arrays]
    del arrays
    assert all(value() is not None for value in before)
    held: list[bool] = []

    class Looks(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            held.extend(value() is not None for value in before)

    trained.fit(X, Y, callbacks=[Looks()], **FIT)
    assert held
    assert not any(held[len(before) :])  # after the first batch


def test_a_first_batch_that_cant_be_read_costs_no_weights() -> None:
    with mirrored(3).scope():
        trained = model()
    trained.fit(X, Y, **FIT)
    weights = trained.get_weights()
    rows = dl.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    broken = rows.map(lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        trained.fit(broken, verbose=0)
    for before, after in zip(weights, trained.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert np.isfinite(trained.fit(X, Y, **FIT).history["loss"]).all()


def regression(loss: Any, **compiled: Any) -> Any:
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    network.compile(keras.optimizers.SGD(0.1), loss, **compiled)
    return network


def mean_of_all(y: Any, outputs: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - outputs))


def test_by_examples_scalar_losses_and_metrics_are_means(by_examples: None) -> None:
    alone = regression(mean_of_all, metrics=[mean_of_all]).fit(X, X[:, :2], epochs=2, **FIT).history
    with mirrored(3).scope():
        distributed = regression(mean_of_all, metrics=[mean_of_all])
    for name, values in distributed.fit(X, X[:, :2], epochs=2, **FIT).history.items():
        assert values == pytest.approx(alone[name], abs=HALVES), name


def test_replicas_add_up_losses_of_one_number() -> None:
    alone = regression(mean_of_all).train_on_batch(X[:4], X[:4, :2])
    with mirrored(2).scope():
        distributed = regression(mean_of_all)
    loss = distributed.train_on_batch(X[:4], X[:4, :2])
    assert loss == pytest.approx(2 * alone, abs=HALVES)  # as in Keras on TensorFlow


def test_an_own_replica_function_divides_a_scalar_loss_itself() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        loss = keras.losses.MeanSquaredError()
        loss.call = mean_of_all

    def step(x: Any) -> Any:
        return loss(x, 0 * x) / dl.get_replica_context().num_replicas_in_sync

    whole = strategy.reduce("SUM", strategy.run(step, args=(jnp.ones((4, 2)),)), axis=None)
    assert float(whole) == 1


class OwnLoss(keras.Model):  # type: ignore[misc]
    """The example of `compute_loss` in Keras' documentation."""

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        return keras.ops.mean(keras.ops.square(y_pred - y)) + sum(self.losses)


def with_own_loss() -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    made = OwnLoss(inputs, layers.Dense(2, kernel_regularizer="l2")(inputs))
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made


def test_weighed_by_examples_an_own_compute_loss_is_a_mean(by_examples: None) -> None:
    alone = with_own_loss().fit(X, X[:, :2], epochs=2, **FIT).history["loss"]
    with mirrored(3).scope():
        distributed = with_own_loss()
    losses = distributed.fit(X, X[:, :2], epochs=2, **FIT).history["loss"]
    assert losses == pytest.approx(alone, abs=HALVES)


def test_by_examples_all_replicas_weights_divide_a_weighted_mean(
    by_examples: None,
) -> None:
    weights = np.linspace(0, 2, 20, dtype=np.float32)
    weights[:4] = 0  # the whole part of one replica
    losses = []
    for scope in (contextlib.nullcontext(), mirrored(3).scope()):
        with scope:
            network = regression(keras.losses.MeanSquaredError("mean_with_sample_weight"))
        history = network.fit(X, X[:, :2], sample_weight=weights, epochs=2, **FIT).history
        losses.append(history["loss"])
    assert losses[1] == pytest.approx(losses[0], abs=HALVES)


def test_by_examples_each_step_of_masked_sequences_counts_alike(
    by_examples: None,
) -> None:
    tokens = RANDOM.randint(1, 9, (20, 5))
    tokens[np.arange(5) >= RANDOM.randint(1, 6, (20, 1))] = 0
    classes = RANDOM.randint(0, 3, (20, 5))

    def history() -> dict[str, list[float]]:
        keras.utils.set_random_seed(0)
        embedded = [layers.Embedding(9, 4, mask_zero=True), layers.BatchNormalization()]
        network = keras.Sequential([keras.Input((5,)), *embedded, layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile("adam", loss, metrics=["accuracy"], weighted_metrics=[loss.fn])
        found: dict[str, list[float]] = network.fit(tokens, classes, epochs=2, **FIT).history
        return found

    alone = history()
    with mirrored(3).scope():
        for name, values in history().items():
            assert values == pytest.approx(alone[name], abs=HALVES), name

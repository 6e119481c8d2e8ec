"""Keras' objects in functions that `strategy.run` runs, as in TensorFlow's custom loops."""

from __future__ import annotations

import collections
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentTypeError, ScopeError

X: Final = jnp.ones((4, 3))


def mirrored() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def made() -> tuple[dl.Strategy, Any]:
    strategy = mirrored()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
        model.compile("sgd", "mse")
    model.set_weights([np.ones((3, 2))])
    return strategy, model


def test_a_step_reads_the_models_present_weights_and_is_compiled_once() -> None:
    strategy, model = made()
    _, other = made()
    traced: list[None] = []

    def total(x: Any) -> Any:
        traced.append(None)
        return model(x).sum() + other(x).sum()

    assert [float(v) for v in strategy.run(total, args=(X,)).values] == [48.0, 48.0]
    other.set_weights([np.zeros((3, 2))])
    assert float(strategy.run(total, args=(X,)).values[1]) == 24.0
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    expected = float(model(X).sum())
    assert float(strategy.run(total, args=(X,)).values[0]) == pytest.approx(expected)
    assert len(traced) == 1


def test_gradients_are_added_up_and_fit_goes_on_with_the_weights(eager: bool) -> None:
    del eager
    strategy, model = made()

    def step(x: Any) -> Any:
        loss, gradients = dl.keras.value_and_grad(
            lambda: keras.ops.sum(model(x)), model.trainable_variables
        )
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = strategy.run(step, args=(X,))
    assert [float(loss) for loss in losses.values] == [24.0, 24.0]
    # Each replica's gradient is 4 at each weight, the learning rate 0.01.
    assert np.asarray(model.get_weights()[0]) == pytest.approx(np.full((3, 2), 1 - 0.01 * 8))
    assert int(model.optimizer.iterations) == 1
    model.fit(np.ones((4, 3)), np.full((4, 2), 2.76), verbose=0)
    assert np.asarray(model.get_weights()[0]) == pytest.approx(np.full((3, 2), 0.92))
    assert int(model.optimizer.iterations) == 2


def test_weights_that_were_read_can_be_assigned_again() -> None:
    strategy, model = made()
    (kernel,) = model.trainable_variables
    best = kernel.value
    strategy.run(lambda: kernel.assign_add(jnp.ones((3, 2))))
    assert float(kernel.value[0, 0]) == 2.0
    kernel.assign(best)
    strategy.run(lambda: kernel.assign_add(jnp.ones((3, 2))))
    kernel.assign(best)  # what was assigned last from outside, and changed since
    assert float(kernel.value[0, 0]) == 1.0


def test_a_metric_counts_on_each_replica_and_sums_outside(eager: bool) -> None:
    del eager
    strategy = mirrored()
    with strategy.scope():
        mean = keras.metrics.Mean()

    def step(x: Any) -> Any:
        mean.update_state(x * dl.get_replica_context().replica_id_in_sync_group)
        return mean.result()

    inside = strategy.run(step, args=(jnp.asarray([1.0, 3.0]),))
    assert [float(value) for value in inside.values] == [0.0, 2.0]
    assert float(mean.result()) == 1.0
    mean.reset_state()
    assert float(mean.result()) == 0.0


def test_metrics_that_the_first_step_makes_are_kept(eager: bool) -> None:
    del eager
    strategy = mirrored()
    means: Any = collections.defaultdict(keras.metrics.Mean)

    def step(x: Any) -> None:
        means["x"].update_state(x + dl.get_replica_context().replica_id_in_sync_group)

    for value in (1.0, 3.0):
        strategy.run(step, args=(jnp.float32(value),))
    assert (float(means["x"].result()), float(means["x"].count)) == (2.5, 4.0)


def test_a_step_may_make_layers_without_variables(eager: bool) -> None:
    del eager
    strategy = mirrored()
    with strategy.scope():
        dense = keras.layers.Dense(2, kernel_initializer="ones")
        optimizer = keras.optimizers.Adam(0.1)  # the first step makes its variables

    def step(x: Any) -> Any:
        def loss_fn() -> Any:
            hidden = dense(x)
            return keras.ops.sum(keras.layers.Add()([hidden, hidden]))

        dense(x)
        loss, gradients = dl.keras.value_and_grad(loss_fn, dense.trainable_variables)
        optimizer.apply_gradients(zip(gradients, dense.trainable_variables, strict=True))
        return loss

    losses = [strategy.run(step, args=(jnp.ones((1, 3)),)).values[1] for _ in range(2)]
    # Adam takes 0.1 off each of the six weights and two biases.
    assert [float(loss) for loss in losses] == pytest.approx([12.0, 12.0 - 2 * 0.8], abs=1e-4)


def test_gradients_of_a_model_made_in_no_scope_are_computed(eager: bool) -> None:
    del eager
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    result = mirrored().run(
        lambda: dl.keras.value_and_grad(lambda: keras.ops.sum(model(X)), model.trainable_variables)[
            1
        ][0]
    )
    assert result.values[1].tolist() == [[4.0, 4.0]] * 3


def test_an_optimizer_may_be_built_inside_a_scan() -> None:
    strategy, model = made()
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

    def steps(rows: Any) -> Any:
        def one(_: None, x: Any) -> tuple[None, Any]:
            loss, gradients = dl.keras.value_and_grad(
                lambda: keras.ops.sum(model(x)), model.trainable_variables
            )
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return None, loss

        return dl.scan(one, None, rows)[1]

    losses = strategy.run(steps, args=(jnp.ones((2, 1, 3)),)).values[0]
    # Two replicas' gradients are 2 at each weight, so the first step takes 0.2 off each.
    assert losses.tolist() == pytest.approx([6.0, 6 * 0.8])
    assert int(optimizer.iterations) == 2


def test_a_variable_without_a_part_in_the_loss_has_no_gradient() -> None:
    w, other = dl.Variable([1.0, 2.0]), dl.Variable(3.0)
    counted = dl.Variable(0)

    def loss() -> tuple[Any, dict[str, Any]]:
        counted.assign_add(1)
        return (w.value() ** 2).sum(), {"other": other.value(), "name": "squares"}

    (value, aux), (first, second) = dl.value_and_grad(loss, (w, other), has_aux=True)
    assert (float(value), first.tolist(), second) == (5.0, [2.0, 4.0], None)
    assert (float(aux["other"]), aux["name"], int(counted)) == (3.0, "squares", 1)


def test_a_variable_listed_twice_has_its_gradient_twice() -> None:
    w = dl.Variable(3.0)
    _, gradients = dl.value_and_grad(lambda: w * w, [w, w])
    assert [float(gradient) for gradient in gradients] == [6.0, 6.0]


def test_a_jitted_helper_of_a_loss_reads_the_present_variable(eager: bool) -> None:
    del eager
    strategy = mirrored()
    with strategy.scope():
        w = dl.Variable(2.0)
    scaled = jax.jit(lambda x: x * w.value())

    def step(x: Any) -> Any:
        first, gradient = dl.value_and_grad(lambda: scaled(x), w)
        second, _ = dl.value_and_grad(lambda: 2 * scaled(x), w)
        w.assign_sub(gradient)
        return first, second, scaled(x)

    seen = [strategy.run(step, args=(jnp.float32(1.0),)) for _ in range(2)]
    found = [[float(part.values[1]) for part in one] for one in seen]
    assert found == [[2.0, 4.0, 1.0], [1.0, 2.0, 0.0]]
    loss, gradient = dl.value_and_grad(lambda: scaled(3.0), w)
    assert (float(loss), float(gradient)) == (0.0, 3.0)
    assert float(dl.value_and_grad(lambda: scaled(4.0), w)[1]) == 4.0


def test_what_is_no_variable_or_no_pair_is_refused() -> None:
    w = dl.Variable(1.0)
    with pytest.raises(ArgumentTypeError, match="differentiates by variables, got"):
        dl.value_and_grad(lambda: w * w, [w, 1.0])
    with pytest.raises(ArgumentTypeError, match=r"pair \(loss, aux\)"):
        dl.value_and_grad(w.value, w, has_aux=True)


def test_an_update_of_a_model_made_outside_of_the_scope_is_refused() -> None:
    strategy = mirrored()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5)
    before = model.get_weights()

    def step() -> None:
        gradients = [jnp.ones(v.shape) for v in model.trainable_variables]
        optimizer.apply(gradients, model.trainable_variables)

    with pytest.raises(ScopeError, match="was not created in the scope"):
        strategy.run(step)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert strategy.run(lambda: model(X)).values[0].shape == (4, 2)


def test_a_checkpoint_of_model_optimizer_and_metric_resumes_exactly(tmp_path: Any) -> None:
    def objects() -> tuple[Any, Any, Any, Any]:
        strategy = mirrored()
        with strategy.scope():
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            optimizer = keras.optimizers.Adam(0.1)
            mean = keras.metrics.Mean()

        def step(x: Any) -> Any:
            loss, gradients = dl.keras.value_and_grad(
                lambda: keras.ops.mean(keras.ops.square(model(x) - 1.0)), model.trainable_variables
            )
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            mean.update_state(loss)
            return loss

        def losses(count: int) -> list[float]:
            return [float(strategy.run(step, args=(X,)).values[0]) for _ in range(count)]

        parts = dl.train.Checkpoint(model=model, optimizer=optimizer, mean=mean)
        return losses, parts, optimizer, mean

    train, parts, _, mean = objects()
    train(3)
    path = parts.save(tmp_path / "ckpt")
    expected, total = train(2), float(mean.result())
    for steps_before in (0, 1):  # its first step makes the optimizer's variables
        again, parts, optimizer, mean = objects()
        again(steps_before)
        parts.restore(path).assert_consumed()
        assert again(2) == expected
        assert (int(optimizer.iterations), float(mean.result())) == (5, total)

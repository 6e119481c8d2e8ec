"""A variable that is read in a function that JAX differentiates by its value is warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import distlab as dl
from distlab.errors import ContextError, GradientWarning

X = jnp.array([1.0, 2.0, 3.0])

pytestmark = pytest.mark.usefixtures("eager")


class Model:
    """Reads its variables, as a model of TensorFlow's does."""

    def __init__(self) -> None:
        self.strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
        with self.strategy.scope():
            self.w = dl.Variable(jnp.ones(3), name="w")
            self.b = dl.Variable(0.0, name="b")

    def __call__(self, x: Any) -> Any:
        return ((self.w.value() * x).sum() + self.b.value()) ** 2


def _distance_to(fixed: Any, value: Any) -> Any:
    return jax.grad(lambda w: ((w - fixed) ** 2).sum())(value)


READ_INSIDE: dict[str, Callable[[Model, Any], Any]] = {
    "grad": lambda m, x: jax.grad(lambda _: m(x))(m.w.value()),
    "grad by the variable itself": lambda m, x: jax.grad(lambda _: m(x))(m.w),
    "value_and_grad": lambda m, x: jax.value_and_grad(lambda _: m(x))(m.w.value()),
    "a dict of values": lambda m, x: jax.grad(lambda _: m(x))({"w": m.w.value()}),
    "the second argument": lambda m, x: jax.grad(lambda row, _: m(row), argnums=1)(x, m.w.value()),
    "an operator": lambda m, x: jax.grad(lambda _: ((m.w * x).sum()) ** 2)(m.w.value()),
    "jnp": lambda m, x: jax.grad(lambda _: jnp.asarray(m.w) @ x)(m.w.value()),
    "used as well": lambda m, x: jax.grad(lambda w: m(x) + (w**2).sum())(m.w.value()),
    "vjp": lambda m, x: jax.vjp(lambda _: m(x), m.w.value())[1](jnp.float32(1)),
    "jvp": lambda m, x: jax.jvp(lambda _: m(x), (m.w.value(),), (x,)),
    "linearize": lambda m, x: jax.linearize(lambda _: m(x), m.w.value())[1](x),
    "jacfwd": lambda m, x: jax.jacfwd(lambda _: m(x))(m.w.value()),
    "jacrev": lambda m, x: jax.jacrev(lambda _: m(x))(m.w.value()),
    "hessian": lambda m, x: jax.hessian(lambda _: m(x))(m.w.value()),
    "vmap of grad": lambda m, x: jax.vmap(jax.grad(lambda _, row: m(row)), in_axes=(None, 0))(
        m.w.value(), jnp.stack([x, x])
    ),
    "jit in grad": lambda m, x: jax.grad(jax.jit(lambda _: m(x)))(m.w.value()),
    "checkpoint in grad": lambda m, x: jax.grad(jax.checkpoint(lambda _: m(x)))(m.w.value()),
    "grad in grad": lambda m, x: jax.grad(
        lambda b: jax.grad(lambda _: m(x) * b)(m.w.value()).sum()
    )(1.0),
    "dl.scan": lambda m, x: dl.scan(
        lambda _, row: (None, jax.grad(lambda _: m(row))(m.w.value())), None, jnp.stack([x, x])
    ),
}


@pytest.mark.parametrize("step", READ_INSIDE.values(), ids=READ_INSIDE)
def test_a_read_that_the_gradient_leaves_out_is_warned_of(
    step: Callable[[Model, Any], Any],
) -> None:
    model = Model()
    with pytest.warns(GradientWarning, match=r"^w is read .* the value of w\.") as warned:
        model.strategy.run(step, args=(model, X), options=dl.RunOptions(static_argnums=0))
    assert {warning.filename for warning in warned} == {__file__}


ALL_IN_ARGUMENTS: dict[str, Callable[[Model, Any], Any]] = {
    "the argument": lambda m, x: jax.grad(lambda w: (w * x).sum())(m.w.value()),
    "the variable as argument": lambda m, x: jax.grad(lambda w: (w * x).sum())(m.w),
    "another variable": lambda m, x: jax.grad(lambda b: (m.w * x).sum() * b)(m.b.value()),
    "an argument that is no part of it": lambda m, x: jax.grad(
        lambda w, _: (w * x).sum() + m.b.value()
    )(m.w.value(), m.b.value()),
    "a constant that was read before": lambda m, _: _distance_to(m.w.value(), m.w.value()),
    "vmap": lambda m, x: jax.vmap(lambda w: m(x) * w)(m.w.value()),
    "jit": lambda m, x: jax.jit(lambda w: m(x) * w)(m.w.value()),
    "after grad": lambda m, x: jax.grad(lambda w: (w * x).sum())(m.w.value()) + m.w.value(),
}


@pytest.mark.parametrize("step", ALL_IN_ARGUMENTS.values(), ids=ALL_IN_ARGUMENTS)
def test_a_function_that_computes_with_its_arguments_is_not_warned_of(
    step: Callable[[Model, Any], Any],
) -> None:
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.strategy.run(step, args=(model, X), options=dl.RunOptions(static_argnums=0))


def test_variables_that_share_their_memory_are_told_apart(eager: bool) -> None:
    """An assignment does not copy: the target of a network may be its very array."""
    del eager
    model = Model()
    with model.strategy.scope():
        made = dl.Variable(model.w.value(), name="made")
        assigned = dl.Variable(jnp.zeros(3), name="assigned")

    def step(x: Any) -> Any:
        assigned.assign(model.w.value())
        target = lambda w: ((made.value() + assigned.value()) * w * x).sum()  # noqa: E731
        return jax.grad(target)(model.w.value())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.strategy.run(step, args=(X,))
        jax.grad(lambda w: (made.value() * w).sum())(model.w.value())


def test_arrays_of_several_devices_beside_a_variable_are_differentiated() -> None:
    model = Model()
    rows = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("x",)), PartitionSpec("x"))
    divided = jax.device_put(jnp.ones(4), rows)
    factor = float(model.b.value())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = jax.grad(lambda v: (v * float(model.b.value())).sum())(divided)
    assert gradient.tolist() == [factor] * 4


TABLE_READ_INSIDE: dict[str, Callable[[Any, Any], Any]] = {
    "its value": lambda table, ids: jax.grad(lambda _: table.value()[ids].sum())(table.value()),
    "rows": lambda table, ids: jax.grad(lambda _: table.sparse_read(ids).sum())(table.value()),
    "by the table itself": lambda table, ids: jax.grad(lambda _: table.sparse_read(ids).sum())(
        table
    ),
    "by rows": lambda table, ids: jax.grad(lambda _: table.sparse_read(ids).sum())(
        table.sparse_read(ids)
    ),
}


@pytest.mark.parametrize("step", TABLE_READ_INSIDE.values(), ids=TABLE_READ_INSIDE)
def test_reads_of_a_table_in_parts_are_warned_of(step: Callable[[Any, Any], Any]) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        parts = [dl.Variable([0.0, 1.0], name="a"), dl.Variable([2.0], name="b")]
    table = dl.ShardedVariable(parts, name="table")

    def trains(ids: Any) -> Any:
        return step(table, ids)

    with pytest.warns(GradientWarning, match="by the value of table"):
        strategy.run(trains, args=(jnp.array([2, 0]),))

    def right(ids: Any) -> Any:
        return jax.grad(lambda whole: whole[ids].sum())(table.value())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = strategy.run(right, args=(jnp.array([2, 0]),))
    assert strategy.experimental_local_results(gradient)[1].tolist() == [1, 0, 1]


def test_outside_of_run_a_read_is_warned_of_as_well() -> None:
    model = Model()
    with pytest.warns(GradientWarning, match=r"^w is read"):
        gradient = jax.grad(lambda _: model(X))(model.w.value())
    assert gradient.tolist() == [0, 0, 0]
    assert jax.grad(lambda w: (w * X).sum())(model.w.value()).tolist() == X.tolist()


def test_a_training_step_in_the_way_of_tensorflow_is_warned_of_and_its_remedy_trains() -> None:
    model = Model()
    optimizer = optax.sgd(0.1)

    def step(x: Any, loss_of: Any) -> Any:
        params = [model.w.value(), model.b.value()]
        loss, gradients = jax.value_and_grad(loss_of)(params, x)
        updates, _ = optimizer.update(gradients, optimizer.init(params))
        for variable, update in zip([model.w, model.b], updates, strict=True):
            variable.assign_add(dl.get_replica_context().all_reduce("MEAN", update))
        return loss

    def by_argument(params: Any, x: Any) -> Any:
        w, b = params
        return ((w * x).sum() + b) ** 2

    options = dl.RunOptions(static_argnums=1)
    with pytest.warns(GradientWarning) as warned:
        model.strategy.run(step, args=(X, lambda _, x: model(x)), options=options)
    assert {str(one.message).partition(" is")[0] for one in warned} == {"w", "b"}
    assert model.w.numpy().tolist() == [1, 1, 1]
    model.strategy.run(step, args=(X, by_argument), options=options)
    np.testing.assert_allclose(model.w.numpy(), 1 - 0.1 * 2 * 6 * X)


def test_under_the_users_own_jit_a_read_stays_an_error() -> None:
    model = Model()
    with pytest.raises(ContextError, match=r"inside jax\.jit"):
        jax.grad(jax.jit(lambda _: model(X)))(model.w.value())

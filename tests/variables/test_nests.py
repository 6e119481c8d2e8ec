"""Nests of variables work as nests of their values: in JAX, in Optax and in replica functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import distlab as dl
from distlab.errors import ContextError
from distlab.values.distributed import stack


@pytest.fixture
def s() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _made(s: dl.Strategy, nest: Any) -> Any:
    with s.scope():
        return jax.tree.map(dl.Variable, nest)


def _numbers(nest: Any) -> Any:
    return jax.tree.map(lambda v: np.asarray(v).tolist(), nest)


def _loss(params: Any, x: Any) -> jax.Array:
    return ((params["w"] * x).sum() + params["b"]) ** 2


def test_the_structure_is_that_of_the_values(s: dl.Strategy) -> None:
    values = {"w": jnp.array([1.0, 2.0]), "b": [jnp.array(0.5)]}
    variables = _made(s, values)
    structure: Any = jax.tree.structure(values)
    assert jax.tree.structure(variables) == structure
    total = {"w": [2.0, 4.0], "b": [1.0]}
    assert _numbers(jax.tree.map(jnp.add, variables, values)) == total
    assert _numbers(jax.tree.map(jnp.add, values, variables)) == total
    assert _numbers(jax.tree.map(lambda v, a: v + a, variables, variables)) == total
    assert jax.tree.leaves(variables)[0] is variables["b"][0]


@pytest.mark.slow
def test_jax_takes_variables_for_arrays(s: dl.Strategy) -> None:
    v = _made(s, jnp.array([3.0, 4.0]))
    assert float(jnp.linalg.norm(v)) == 5.0
    assert float(jax.lax.add(v, v)[0]) == 6.0
    assert jax.jit(lambda nest: nest["v"] * 2)({"v": v}).tolist() == [6.0, 8.0]
    assert jax.grad(lambda nest: (nest["v"] ** 2).sum())({"v": v})["v"].tolist() == [6.0, 8.0]
    assert jax.vmap(lambda x: x + 1)(v).tolist() == [4.0, 5.0]
    assert jax.lax.scan(lambda c, x: (c + x, c), v, jnp.ones(2))[0].tolist() == [5.0, 6.0]
    assert jax.hessian(lambda x: (x**2).sum())(v).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert jax.device_get({"v": v})["v"].tolist() == [3.0, 4.0]
    assert jax.block_until_ready(v) is v
    v.assign([1.0, 0.0])  # a compiled function reads the present value
    assert jax.jit(lambda nest: nest["v"] * 2)({"v": v}).tolist() == [2.0, 0.0]
    assert (v.ndim, v.size, v.sum().item(), v.astype(int).dtype.kind) == (1, 2, 1.0, "i")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        v.nonsense  # noqa: B018 - the attribute is what is tested
    with pytest.raises(ContextError, match="compile its present value in"):
        jax.jit(lambda: jnp.sin(v))()


@pytest.mark.usefixtures("eager")
def test_optax_updates_variables_as_it_updates_arrays(s: dl.Strategy) -> None:
    tx = optax.sgd(0.1, momentum=0.9)
    values = {"w": jnp.array([1.0, 2.0]), "b": jnp.array(0.5)}
    params = _made(s, values)
    state = _made(s, tx.init(params))
    x = stack([jnp.ones(2), 2 * jnp.ones(2)], s.mesh)

    def step(x: jax.Array) -> jax.Array:
        loss, gradients = jax.value_and_grad(_loss)(params, x)
        gradients = dl.get_replica_context().all_reduce("MEAN", gradients)
        updates, new = tx.update(gradients, state, params)
        jax.tree.map(lambda v, a: v.assign(a), params, optax.apply_updates(params, updates))
        jax.tree.map(lambda v, a: v.assign(a), state, new)
        return loss

    expected, plain = values, tx.init(values)
    for _ in range(2):
        loss = s.reduce("MEAN", s.run(step, args=(x,)), axis=None)
        both = [jax.value_and_grad(_loss)(expected, own) for own in x.values]
        gradients = jax.tree.map(lambda a, b: (a + b) / 2, both[0][1], both[1][1])
        updates, plain = tx.update(gradients, plain, expected)
        expected = optax.apply_updates(expected, updates)
        np.testing.assert_allclose(loss, (both[0][0] + both[1][0]) / 2, rtol=1e-5)
    jax.tree.map(
        lambda v, a: np.testing.assert_allclose(np.asarray(v), a, rtol=1e-5), params, expected
    )
    jax.tree.map(lambda v, a: np.testing.assert_allclose(np.asarray(v), a, rtol=1e-5), state, plain)


def test_variables_in_nested_arguments_stay_variables(s: dl.Strategy, eager: bool) -> None:
    del eager
    params = _made(s, {"w": jnp.array(1.0), "rest": [jnp.array(2.0)]})

    def step(nest: Any, x: Any) -> Any:
        assert isinstance(nest["rest"][0], dl.Variable)
        nest["rest"][0].assign_add(x)
        return nest

    assert s.run(step, args=(params, 5.0)) == params
    assert float(params["rest"][0]) == 7.0


def test_equality_is_elementwise_except_between_variables(s: dl.Strategy) -> None:
    v, w = _made(s, [jnp.array(7.0), jnp.array(7.0)])
    assert bool(v == 7.0)
    assert bool(v != np.float32(1.0))
    assert (_made(s, jnp.array([1.0, 2.0])) == jnp.array([1.0, 3.0])).tolist() == [True, False]
    assert v != w
    assert [w, v].index(v) == 1
    assert {v: "v", w: "w"}[w] == "w"
    assert v != "v"


def test_scattering_refuses_what_does_not_fit() -> None:
    v = dl.Variable([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(TypeError, match="IndexedSlices"):
        v.scatter_add([1.0])
    for slices in (
        dl.IndexedSlices([1.0, 2.0], [0, 1]),
        dl.IndexedSlices(np.ones((1, 2), np.int64), [0]),
    ):
        with pytest.raises(ValueError, match="Rows have the shape"):
            v.scatter_add(slices)
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"the index {index}"):
            v.scatter_add(dl.IndexedSlices([[1.0, 2.0]], [index]))
        with pytest.raises(ValueError, match=f"the index {index}"):
            v.scatter_nd_add([[0, index]], [1.0])
    with pytest.raises(ValueError, match="Updates have the shape"):
        v.scatter_nd_add([[0, 1, 1]], [1.0])
    assert np.asarray(v).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_scatter_nd_works_on_one_copy_alone(s: dl.Strategy) -> None:
    v = dl.Variable([1.0, 2.0, 3.0])
    v.scatter_nd_add([[0], [2]], [1.0, 1.0]).scatter_nd_sub([[1]], [2.0])
    v.scatter_nd_update([[1]], [9.0]).scatter_nd_max([[0]], [5.0]).scatter_nd_min([[2]], [0.0])
    assert np.asarray(v).tolist() == [5.0, 9.0, 0.0]
    with pytest.raises(NotImplementedError, match="several replicas"):
        _made(s, jnp.array([1.0])).scatter_nd_add([[0]], [1.0])

"""JAX's operations have the names and parameters that distlab reads.

JAX may change them in any release. Then a test here fails and names the one that moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from distlab.devices.mesh import AXIS
from distlab.step.jaxprs import operations


def _equations(fn: Callable[..., Any], *args: Any) -> list[Any]:
    closed = jax.make_jaxpr(fn, axis_env=[(AXIS, 2)])(*args)
    return list(closed.jaxpr.eqns)


def _one(name: str, fn: Callable[..., Any], *args: Any) -> Any:
    (equation,) = [e for e in _equations(fn, *args) if operations.name(e) == name]
    return equation


COLLECTIVES: dict[str, tuple[Callable[[Any], Any], bool, bool]] = {
    "psum": (lambda x: jax.lax.psum(x, AXIS), True, True),
    "pmax": (lambda x: jax.lax.pmax(x, AXIS), True, False),
    "pmin": (lambda x: jax.lax.pmin(x, AXIS), True, False),
    "all_gather": (lambda x: jax.lax.all_gather(x, AXIS), True, False),
    "ppermute": (lambda x: jax.lax.ppermute(x, AXIS, [(0, 1), (1, 0)]), False, False),
    "all_to_all": (lambda x: jax.lax.all_to_all(x, AXIS, 0, 0), False, False),
    "reduce_scatter": (lambda x: jax.lax.psum_scatter(x, AXIS), False, False),
}


def test_collectives_are_known_by_their_axis() -> None:
    for name, (fn, same_on_all, all_reduce) in COLLECTIVES.items():
        (equation,) = [e for e in _equations(fn, jnp.ones(2)) if operations.is_collective(e)]
        assert operations.is_same_on_all(equation) is same_on_all
        assert operations.is_all_reduce(equation) is all_reduce
        expected = [(0, 1), (1, 0)] if name == "ppermute" else None
        assert operations.permutation(equation) == expected


def _squared(x: Any) -> Any:
    return jax.lax.psum(x * x, AXIS)


@jax.custom_jvp
def _with_jvp(x: Any) -> Any:
    return _squared(x)


_with_jvp.defjvps(lambda tangent, *_: tangent)


@jax.custom_vjp
def _with_vjp(x: Any) -> Any:
    return _squared(x)


_with_vjp.defvjp(lambda x: (_squared(x), x), lambda _, g: (g,))


@pytest.mark.parametrize("fn", [jax.jit(_squared), jax.checkpoint(_squared), _with_jvp, _with_vjp])
def test_what_is_called_once_is_found(fn: Callable[..., Any]) -> None:
    (equation,) = _equations(fn, 2.0)
    inner = operations.called(equation)
    assert inner is not None
    assert operations.name(inner.jaxpr.eqns[0]) == "mul"
    assert str(operations.collective_in(inner.jaxpr)).startswith("psum")


@pytest.mark.parametrize("reverse", [False, True])
def test_the_parts_of_a_scan_are_found(reverse: bool) -> None:
    def fn(a: Any, b: Any, c: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            return (carry[0] + a * x, carry[1] * b * x), carry[0] + c

        return jax.lax.scan(body, (0.0, 1.0), xs, reverse=reverse)

    found = operations.scan(_one("scan", fn, 2.0, 3.0, 4.0, jnp.ones(5)))
    assert found is not None
    assert (found.consts, found.carry, found.length) == (3, 2, 5)
    assert found.reverse == reverse
    assert len(found.body.jaxpr.invars) == 3 + 2 + 1
    assert len(found.body.jaxpr.outvars) == 2 + 1


def test_the_parts_of_a_while_loop_are_found() -> None:
    def fn(a: Any, limit: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda y: y < limit, lambda y: y * a + limit, x)

    found = operations.while_loop(_one("while", fn, 2.0, 10.0, 1.0))
    assert found is not None
    assert (found.condition_consts, found.body_consts) == (1, 2)
    assert operations.name(found.condition.jaxpr.eqns[0]) == "lt"
    assert [operations.name(e) for e in found.body.jaxpr.eqns] == ["mul", "add"]


def test_what_is_inside_of_an_equation_is_found_at_any_depth() -> None:
    def fn(x: Any) -> Any:
        number = jax.jit(lambda: jax.lax.axis_index(AXIS))
        return jax.lax.cond(x > 0, lambda: number() * 1, lambda: jnp.int32(1))

    equation = _one("cond", fn, 1.0)
    assert operations.calls_replica_id(equation)
    assert not operations.calls_collective(equation)
    (call,) = _equations(jax.jit(jax.jit(_squared)), 2.0)
    assert operations.calls_collective(call)
    assert not operations.calls_replica_id(call)


def test_effects_are_known_and_collectives_have_none() -> None:
    assert operations.has_effect(_equations(lambda x: jax.debug.print("{}", x), 1.0)[0])
    assert not any(map(operations.has_effect, _equations(_squared, 1.0)))
    assert not operations.has_effect(_equations(jax.jit(_squared), 1.0)[0])


def _keys(fn: Callable[..., Any], *args: Any) -> list[Any]:
    return [operations.key(e, range(len(e.invars))) for e in _equations(fn, *args)]


SAME: dict[str, Callable[[], Callable[..., Any]]] = {
    "parameters": lambda: lambda x: jnp.sum(x, axis=0),
    "calls of functions made anew": lambda: jax.jit(lambda x: jnp.sin(x) * 2),
    "loops": lambda: lambda x: jax.lax.scan(lambda c, r: (c + r, r * 2), x[0], x)[0],
    "branches": lambda: lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
}


def test_equal_equations_of_two_traces_have_equal_keys() -> None:
    for make in SAME.values():
        first, second = (_keys(make(), jnp.ones(3)) for _ in range(2))
        assert first == second
        assert list(map(hash, first)) == list(map(hash, second))


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "parameters": (lambda x: jnp.sum(x, axis=0), lambda x: jnp.sum(x, axis=1)),
    "literals": (jax.jit(lambda x: x * 2), jax.jit(lambda x: x * 3)),
    "bodies": (jax.jit(jnp.sin), jax.jit(jnp.cos)),
    "wiring": (jax.jit(lambda x: x - x.T), jax.jit(lambda x: x.T - x)),
    "constants": (jax.jit(lambda x: x + np.arange(2)), jax.jit(lambda x: x + np.arange(1, 3))),
    "effects": (lambda x: jax.debug.print("{}", x), lambda x: jax.debug.print("{}", x)),
}


def test_different_equations_have_different_keys() -> None:
    for pair in DIFFERENT.values():
        first, second = (_keys(fn, jnp.ones((2, 2))) for fn in pair)
        assert first != second


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.pure_callback(lambda v: v, x, x),
        lambda x: jax.lax.cond(x.sum() > 0, lambda: jax.debug.print("{}", x), lambda: None),
        lambda x: jax.ffi.ffi_call("foreign", jax.ShapeDtypeStruct(x.shape, x.dtype))(x),
    ],
    ids=["callback", "print", "ffi"],
)
def test_what_reaches_out_of_a_program_is_found_at_any_depth(fn: Callable[[Any], Any]) -> None:
    nested = jax.make_jaxpr(jax.jit(lambda x: (fn(x), x + 1)))(jnp.ones(2))
    assert operations.reaches_out(nested.jaxpr)


def test_arithmetic_and_collectives_do_not_reach_out() -> None:
    fn = jax.jit(lambda x: jax.lax.psum(jnp.tanh(x) + jax.lax.axis_index(AXIS), AXIS))
    assert not operations.reaches_out(jax.make_jaxpr(fn, axis_env=[(AXIS, 2)])(jnp.ones(2)).jaxpr)

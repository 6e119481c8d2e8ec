"""Arguments of run that are no arrays: what they are compiled for, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import ArgumentTypeError, OptionError


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _counted(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Returns a function, and a list with an element for each time that it is traced."""
    traces: list[int] = []

    @functools.wraps(fn)
    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return fn(*args, **kwargs)

    return counting, traces


@pytest.mark.usefixtures("eager")
def test_bools_strings_and_none_steer_python() -> None:
    s = _strategy()

    def step(x: jax.Array, training: bool, *, mode: str | None = None) -> Any:
        if training:
            x = x * 2
        return x + 1 if mode is None else x + len(mode)

    def of(*args: Any, **kwargs: Any) -> float:
        return float(s.run(step, args=args, kwargs=kwargs).values[0])

    assert (of(3.0, True), of(3.0, False)) == (7.0, 4.0)
    assert (of(3.0, True, mode="abc"), of(3.0, False, mode=None)) == (9.0, 4.0)
    x = s.replicate(np.float32(1))
    assert float(s.run(step, args=(x,), kwargs={"training": True}).values[1]) == 3.0


def test_a_value_is_compiled_once_and_numbers_stay_traced() -> None:
    s = _strategy()
    step, traces = _counted(lambda x, training: x * 2 if training else x)
    for training in (True, False, True, False, True):
        s.run(step, args=(1.0, training))
    assert len(traces) == 2
    step, traces = _counted(lambda x, n, f: x * n + f)
    results = [float(s.run(step, args=(1.0, n, n / 2)).values[0]) for n in range(5)]
    assert results == [1.5 * n for n in range(5)]
    assert len(traces) == 1


def test_an_object_with_variables_trains_as_in_tensorflow() -> None:
    s = _strategy()
    with s.scope():
        model = SimpleNamespace(w=dl.Variable(1.0), scale=2.0)

    def step(model: Any, x: Any) -> Any:
        model.w.assign_add(x)
        return model.w * model.scale

    losses = [float(s.run(step, args=(model, 1.0)).values[0]) for _ in range(3)]
    assert losses == [4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1,)},
        {"static_argnums": -1},
        {"static_argnames": "times"},
    ],
)
def test_a_static_number_is_a_number(options: dict[str, Any]) -> None:
    s = _strategy()

    def repeated(x: Any, times: int) -> list[Any]:
        return [x * 1.0] * times

    run = functools.partial(s.run, repeated, options=dl.RunOptions(**options))
    assert len(run(args=(1.0, 3))) == 3
    assert len(run(args=(1.0, 2))) == 2
    if options.get("static_argnums") != -1:
        assert len(run(args=(1.0,), kwargs={"times": 4})) == 4


def test_wrong_options_are_refused() -> None:
    wrong: list[Any] = [
        ({"static_argnums": 5}, (1.0, 2), "positions of the function's arguments"),
        ({"static_argnums": "times"}, (1.0, 2), "positions"),
        ({"static_argnames": "time"}, (1.0, 2), r"\['time'\].*'times'"),
        ({"static_argnames": 1}, (1.0, 2), "a name or a tuple of names"),
        ({"static_argnums": 1}, (1.0, [2]), "must have a hash, got a list.*tuple"),
        ({"static_argnums": 1}, (1.0, np.ones(2)), "must have a hash, got a ndarray"),
    ]
    for options, args, message in wrong:
        s = _strategy()

        def fn(x: Any, times: Any) -> Any:
            return x

        with pytest.raises(OptionError, match=message):
            s.run(fn, args=args, options=dl.RunOptions(**options))


def _torch_like(base: str) -> Any:
    return type("Net", (), {"__module__": base, "state_dict": dict})()


@pytest.mark.usefixtures("eager")
def test_a_state_holder_is_refused_with_the_way_out() -> None:
    s = _strategy()
    ran = []

    def step(model: Any, x: Any) -> Any:
        ran.append(1)
        return x

    with pytest.raises(ArgumentTypeError, match=r"model is a \S+ Net, .*state_dict"):
        s.run(step, args=(_torch_like("torch.nn.modules.module"), 1.0))
    nested = {"m": (1, _torch_like("torch.nn.modules.module"))}
    with pytest.raises(ArgumentTypeError, match=r"model\['m'\]\[1\] is a \S+ Net"):
        s.run(step, kwargs={"model": nested, "x": 1.0})
    assert not ran


def test_the_default_strategy_runs_python_on_them() -> None:
    metric = nnx.metrics.Average()
    dl.get_strategy().run(lambda m, x: m.update(values=x), args=(metric, jnp.ones(2)))
    assert float(metric.compute()) == 1.0


def _loss(model: Any, x: jax.Array) -> jax.Array:
    return ((model(x) - 1.0) ** 2).mean()


def test_nnx_from_outside_is_never_stale() -> None:
    s = _strategy()
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = np.ones((2, 3), np.float32)

    def evaluate(x: jax.Array) -> Any:
        return model(x).sum()

    for scale in (0.0, 1.0):
        model.kernel[...] = jnp.full((3, 2), scale)
        assert float(s.run(evaluate, args=(x,)).values[0]) == 12.0 * scale


def test_nnx_from_outside_can_not_be_changed(eager: bool) -> None:
    s = _strategy()
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    metric = nnx.metrics.Average()
    before = np.asarray(model.kernel[...])

    def step(x: jax.Array) -> Any:
        metric.update(values=_loss(model, x))
        model.kernel[...] = model.kernel[...] * 2
        return x

    error: Any = ArgumentTypeError if eager else Exception
    with pytest.raises(error) as caught:
        s.run(step, args=(np.ones((2, 3), np.float32),))
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "metric, a flax.nnx Average" in told
    assert "pass it in args=(...)" in told
    np.testing.assert_array_equal(model.kernel[...], before)
    assert int(metric.count[...]) == 0


def test_replicate_keeps_static_leaves_and_refuses_nnx_models() -> None:
    s = _strategy()
    state = s.replicate({"w": 1.0, "name": "a", "f": jnp.tanh, "flag": True})
    assert (state["name"], state["f"], state["flag"]) == ("a", jnp.tanh, True)
    assert [float(v) for v in state["w"].values] == [1.0, 1.0]
    with pytest.raises(
        ArgumentTypeError, match=r"to replicate is a flax\.nnx Linear.*run holds one copy"
    ):
        s.replicate([nnx.Linear(2, 3, rngs=nnx.Rngs(0))])
    with pytest.raises(dl.errors.ValueShapeError, match="all components"):
        s.replicate(state)
    _, nnx_state = nnx.split(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    assert isinstance(s.replicate(nnx_state)["bias"].get_raw_value(), dl.PerReplica)

"""Slips that did nothing, or waited: verbs that are set, creators and functions without `return`,
work that is started while JAX traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    DistlabError,
    StructureError,
    ValueShapeError,
)
from tests.misuse.table import require_refusal


@dataclass
class Out:
    """A class that JAX does not know."""

    loss: Any


EAGERLY: Final = dl.RunOptions(run_eagerly=True)


def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def norm(*args: Any, **options: Any) -> Any:
    return dl.flax.BatchNorm(*args, rngs=nnx.Rngs(0), **options)


def made_by(creator: Callable[..., Any]) -> object:
    with dl.variable_creator_scope(creator):
        return dl.Variable(1.0)


def forgets_return(next_creator: Callable[..., Any], **kwargs: Any) -> None:
    next_creator(**kwargs)


def scanned(body: Callable[..., Any], options: dl.RunOptions | None = None) -> object:
    return strategy().run(lambda: dl.scan(body, 0.0, jnp.ones(3)), options=options)


def compiled_gradient_at(weight: dl.Variable) -> object:
    return jax.jit(jax.grad(lambda x: x * weight))(2.0)


def servers_elsewhere() -> Any:
    spec = dl.ClusterSpec({"worker": ["localhost:9"], "ps": ["localhost:11"]})
    return dl.cluster_resolver.SimpleClusterResolver(spec)


WRONG: Final[dict[str, tuple[Callable[[], object], type[DistlabError], str]]] = {
    "value is set": (
        lambda: setattr(dl.Variable(1.0), "value", 3.0),
        ArgumentTypeError,
        r"value is a verb .* 3\.0\. Assign a value with variable\.assign",
    ),
    "values are set": (
        lambda: setattr(dl.Variable(1.0), "values", [3.0]),
        ArgumentTypeError,
        r"\[3\.0\]",
    ),
    "a creator without return": (
        lambda: made_by(forgets_return),
        ArgumentTypeError,
        "^forgets_return, a function of variable_creator_scope, returned None",
    ),
    "a dataset function without an argument": (
        lambda: strategy().distribute_datasets_from_function(
            lambda: dl.data.Dataset.range(2)  # type: ignore[arg-type, misc]
        ),
        ArgumentTypeError,
        "dataset_fn is called with an InputContext, which <lambda> does not accept: too many",
    ),
    "a partitioner that is none": (
        lambda: dl.ParameterServerStrategy(servers_elsewhere(), variable_partitioner=3),  # type: ignore[arg-type]
        ArgumentTypeError,
        "variable_partitioner .* got 3",
    ),
    "a carry of another shape": (
        lambda: scanned(lambda _, x: (jnp.ones(2), x)),
        StructureError,
        r"init at each step: .*float32\[2\]",
    ),
    "a carry of another shape, eagerly": (
        lambda: scanned(lambda _, x: (jnp.ones(2), x), EAGERLY),
        StructureError,
        r"it has \(\), and step 0 returned \(2,\)",
    ),
    "a carry of another structure": (
        lambda: scanned(lambda c, x: ((c, c), x)),
        StructureError,
        "init at each step",
    ),
    "work in the background of a program": (
        lambda: jax.jit(lambda x: dl.background(lambda: x).result(5))(1),
        ContextError,
        "this once, and not at later calls",
    ),
    "features": (lambda: norm("x"), ArgumentValueError, "num_features .* got 'x'"),
    "no features": (lambda: norm(-1), ArgumentValueError, "num_features .* got -1"),
    "momentum": (lambda: norm(3, momentum="x"), ArgumentValueError, "momentum .* got 'x'"),
    "other features": (
        lambda: norm(3)(jnp.ones((2, 4))),
        ValueShapeError,
        r"3 features along axis -1, .* \[2, 4\]",
    ),
    "no input": (lambda: norm(3)("x"), ValueShapeError, "BatchNorm .* 'x'"),
    "pipelines": (lambda: dl.InputContext(-1), ArgumentValueError, "num_input_pipelines .* got -1"),
    "pipeline": (lambda: dl.InputContext(2, 2), ArgumentValueError, "0 to .* = 1, got 2"),
    "replicas": (
        lambda: dl.InputContext(1, 0, "x"),  # type: ignore[arg-type]
        ArgumentValueError,
        "num_replicas_in_sync .* 'x'",
    ),
    "components of nothing": (lambda: dl.PerReplica(None), ArgumentTypeError, "got None"),
    "a replica that is none": (
        lambda: dl.experimental.ValueContext(-1, 2),
        ArgumentValueError,
        "got -1 and 2",
    ),
    "a replica by its name": (
        lambda: dl.experimental.ValueContext("a", 2),  # type: ignore[arg-type]
        ArgumentValueError,
        "got 'a' and 2",
    ),
    "a result that hides an array": (
        lambda: strategy().run(lambda: Out(jnp.ones(2))),
        StructureError,
        r"result is of class Out and its \.loss is computed",
    ),
    "a result that hides an array in a nest": (
        lambda: strategy().run(lambda: {"a": SimpleNamespace(parts=[jnp.ones(2)])}),
        StructureError,
        r"result\['a'\] is of class SimpleNamespace and its \.parts\[0\] is computed",
    ),
    "a spec of no elements": (lambda: dl.data.DatasetSpec(3), ArgumentTypeError, "got 3"),
    "a gradient that reads a variable, compiled": (
        lambda: compiled_gradient_at(dl.Variable(3.0)),
        ContextError,
        r"read inside jax\.jit",
    ),
    "a gradient that makes a variable, compiled": (
        lambda: jax.jit(jax.grad(lambda x: x * dl.Variable(lambda: jnp.ones(()))))(2.0),
        ContextError,
        r"made inside jax\.jit",
    ),
}
"""What is wrong: the call, its error, and what the message names."""


@pytest.mark.timeout(60)  # none waits
@pytest.mark.parametrize("name", WRONG)
def test_a_slip_is_told(name: str) -> None:
    call, kind, names = WRONG[name]
    require_refusal(call, kind, names)


def test_results_of_classes_that_jax_does_not_know_are_returned_as_they_are() -> None:
    out = Out("a text")
    assert strategy().run(lambda: out) is out


def test_attributes_of_ones_own_can_be_set() -> None:
    variable: Any = dl.Variable(1.0)
    variable.name, variable.note = "other", 3
    assert (variable.name, variable.note, float(variable)) == ("other", 3, 1.0)


def test_the_users_own_error_in_a_dataset_function_is_theirs() -> None:
    def make(context: dl.InputContext) -> Any:
        raise TypeError(context)

    with pytest.raises(TypeError, match="InputContext") as error:
        strategy().distribute_datasets_from_function(make)
    assert not isinstance(error.value, DistlabError)
    for works in (lambda *_: dl.data.Dataset.range(2).batch(1), lambda c=None: iter_of(c)):
        assert next(iter(strategy().distribute_datasets_from_function(works)))


def iter_of(context: Any) -> Any:
    assert context.num_replicas_in_sync == 2
    return dl.data.Dataset.range(2).batch(1)

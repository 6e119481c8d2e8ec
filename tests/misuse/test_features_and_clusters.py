"""Misuse of features of records, of slices of rows, and of the descriptions of clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    DistlabError,
    InvalidArgumentError,
    UnsupportedError,
    ValueShapeError,
)
from tests.misuse.table import require_refusal

io: Final[Any] = dl.io
resolvers: Final[Any] = dl.cluster_resolver
SPEC: Final = dl.ClusterSpec({"worker": ["a:1"]})


def ragged(values: Any, dtype: str = "int64") -> Any:
    records = [io.serialize_example({"a": part}) for part in (values, values[:1])]
    return io.parse_example(records, {"a": io.RaggedFeature(dtype)})["a"]


def slices(values: Any, indices: Any) -> dl.IndexedSlices:
    # As JAX makes them of the leaves of a tree, which their constructor does not see.
    like = jax.tree.structure(dl.IndexedSlices(0.0, 0))
    return jax.tree.unflatten(like, [jnp.asarray(values), jnp.asarray(indices)])


def reduced(values: Any, indices: Any) -> object:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    return strategy.reduce("SUM", strategy.run(lambda: slices(values, indices)), axis=None)


def all_reduced(values: Any, indices: Any) -> object:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    context = dl.get_replica_context
    return strategy.run(lambda: context().all_reduce("SUM", slices(values, indices)))


WRONG: Final[dict[str, tuple[Callable[[], object], type[DistlabError], str]]] = {
    "row_splits_dtype": (
        lambda: io.RaggedFeature("int64", row_splits_dtype="float32"),
        InvalidArgumentError,
        "row_splits_dtype .* 'float32'",
    ),
    "partitions": (
        lambda: io.RaggedFeature("int64", partitions=3),
        UnsupportedError,
        "partitions must be empty, got 3",
    ),
    "padding text": (
        lambda: ragged([1, 2]).to_dense("x"),
        InvalidArgumentError,
        "int64, got 'x'",
    ),
    "padding number": (
        lambda: ragged(["a", "b"], "string").to_dense(3),
        InvalidArgumentError,
        "object, got 3",
    ),
    "padding rows": (
        lambda: ragged([1, 2]).to_dense([1, 2, 3]),
        InvalidArgumentError,
        r"got \[1, 2, 3\]",
    ),
    "padding huge": (
        lambda: ragged([1, 2]).to_dense(10**30),
        InvalidArgumentError,
        "got 10000000",
    ),
    "fewer indices": (
        lambda: all_reduced(np.ones((3, 2)), [0]),
        ValueShapeError,
        r"all_reduce .* float32\[3, 2\] at indices int32\[1\]",
    ),
    "fewer rows": (lambda: reduced(np.ones((1, 2)), [0, 1]), ValueShapeError, "reduce need"),
    "fractions": (lambda: all_reduced(np.ones(1), [0.5]), ValueShapeError, r"float32\[1\]\. Pass"),
    "num_accelerators text": (
        lambda: resolvers.SimpleClusterResolver(SPEC, num_accelerators="2"),
        ArgumentTypeError,
        "num_accelerators .* '2'",
    ),
    "num_accelerators negative": (
        lambda: resolvers.SimpleClusterResolver(SPEC, num_accelerators={"GPU": -1}),
        ArgumentTypeError,
        "{'GPU': -1}",
    ),
    "job_to_label_mapping": (
        lambda: resolvers.KubernetesClusterResolver(job_to_label_mapping=3),
        ArgumentTypeError,
        "job_to_label_mapping .* got 3",
    ),
    "one label": (
        lambda: resolvers.KubernetesClusterResolver({"worker": "job-name=train"}),
        ArgumentTypeError,
        "'job-name=train'",
    ),
    "tpu": (lambda: resolvers.TPUClusterResolver(3), ArgumentTypeError, "tpu .* got 3"),
}
"""What is wrong: the call, its error, and what the message names."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_in_words(name: str) -> None:
    call, kind, names = WRONG[name]
    require_refusal(call, kind, names)


def test_what_is_right_goes_on() -> None:
    assert ragged([1, 2]).to_dense(-1).tolist() == [[1, 2], [1, -1]]
    assert ragged(["a", "b"], "string").to_dense("x").tolist() == [[b"a", b"b"], [b"a", b"x"]]
    joined: Any = reduced(np.ones((2, 3)), [4, 5])
    assert joined.indices.tolist() == [4, 5, 4, 5]
    joined = all_reduced(np.ones((2, 3)), [4, 5])
    assert joined.indices.values[1].tolist() == [4, 5, 4, 5]
    io.RaggedFeature("int64", row_splits_dtype=np.int64)
    resolver = resolvers.SimpleClusterResolver(SPEC, num_accelerators={"GPU": 8})
    assert resolver.num_accelerators() == {"GPU": 8}

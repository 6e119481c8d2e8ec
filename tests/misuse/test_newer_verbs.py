"""Misuse of datasets' specs, records, checkpoints, exports, coordinators and launching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    DistlabError,
    InvalidArgumentError,
    StructureError,
    ValueShapeError,
)
from tests.misuse.table import has_remedy

Dataset: Final[Any] = dl.data.Dataset
Spec: Final[Any] = dl.data.TensorSpec
MASKED: Final = np.ma.MaskedArray([1.0, 2.0], [False, True])
FIELDS: Final = np.zeros(2, [("a", "f4")])


def _export(**options: Any) -> object:
    return dl.export(lambda x: x, jnp.zeros(2), **options)


def _write(folder: Path, record: Any) -> None:
    with dl.io.TFRecordWriter(folder / "records") as writer:
        writer.write(record)


def _save(folder: Path, part: Any) -> object:
    return dl.train.Checkpoint(part=part).save(folder / "ckpt")


def _count(value: Any) -> None:
    dl.train.Checkpoint().save_counter = value


MISUSES: Final[dict[str, tuple[Callable[[Path], object], type[DistlabError], str]]] = {
    "shape None": (lambda _: Spec(None), ArgumentTypeError, "got None"),
    "shape int": (lambda _: Spec(3), ArgumentTypeError, "got 3"),
    "shape text": (lambda _: Spec("ab"), ArgumentTypeError, "'ab'"),
    "shape negative": (lambda _: Spec((-1, 2)), ArgumentTypeError, r"\(-1, 2\)"),
    "shape fraction": (lambda _: Spec((1.5,)), ArgumentTypeError, r"1\.5"),
    "shape bool": (lambda _: Spec((True,)), ArgumentTypeError, "True"),
    "dtype unknown": (lambda _: Spec((), "floaty"), ArgumentTypeError, "'floaty'"),
    "dtype None": (lambda _: Spec((), None), ArgumentTypeError, "got None"),
    "output_types": (
        lambda _: Dataset.from_generator(lambda: [1], "floaty"),
        ArgumentTypeError,
        "'floaty'",
    ),
    "output_types of a list": (
        lambda _: Dataset.from_generator(lambda: [1], ["int32"], [()]),
        ArgumentTypeError,
        "a dict or tuple",
    ),
    "output_signature": (
        lambda _: Dataset.from_generator(lambda: [1], output_signature="int32"),
        StructureError,
        "'int32'",
    ),
    "args of a generator": (
        lambda _: Dataset.from_generator(range, "int32", (), args=3),
        InvalidArgumentError,
        r"args=\(n,\)",
    ),
    "record of surrogates": (lambda p: _write(p, "\ud800"), ArgumentTypeError, "valid Unicode"),
    "feature with a mask": (
        lambda _: dl.io.serialize_example({"a": MASKED}),
        InvalidArgumentError,
        "whose mask would be lost",
    ),
    "feature with fields": (
        lambda _: dl.io.serialize_example({"a": FIELDS}),
        InvalidArgumentError,
        "the fields 'a'",
    ),
    "checkpoint with a mask": (lambda p: _save(p, MASKED), ArgumentTypeError, "part is a masked"),
    "checkpoint with fields": (lambda p: _save(p, FIELDS), ArgumentTypeError, "the fields 'a'"),
    "checkpoint of mixed keys": (
        lambda p: _save(p, {1: jnp.ones(1), "1": jnp.ones(1)}),
        ArgumentTypeError,
        "strings as the keys",
    ),
    "save_counter text": (lambda _: _count("x"), ArgumentTypeError, "save_counter .* 'x'"),
    "save_counter negative": (lambda _: _count(-1), ArgumentTypeError, "save_counter .* -1"),
    "platform unknown": (lambda _: _export(platforms=["abacus"]), ArgumentValueError, "abacus"),
    "platforms text": (lambda _: _export(platforms="cpu"), ArgumentValueError, "got 'cpu'"),
    "platforms none": (lambda _: _export(platforms=[]), ArgumentValueError, r"got \[\]"),
    "timeout negative": (lambda _: dl.background(int).result(-1), ArgumentValueError, "got -1"),
    "timeout text": (lambda _: dl.background(int).result("a"), ArgumentValueError, "got 'a'"),  # type: ignore[arg-type]
    "workers huge": (lambda _: dl.launch(workers=10**9), ArgumentValueError, "at most 4096"),
    "devices huge": (lambda _: dl.launch(1, 10**9), ArgumentValueError, "devices must be at most"),
    "servers huge": (
        lambda _: dl.launch(1, parameter_servers=10**9),
        ArgumentValueError,
        "parameter_servers must be at most",
    ),
}
"""What is wrong: the call, its error, and what the message names."""


@pytest.mark.parametrize("name", MISUSES)
def test_a_wrong_argument_is_refused_in_words(name: str, tmp_path: Path) -> None:
    call, kind, names = MISUSES[name]
    with pytest.raises(kind, match=names) as refused:
        call(tmp_path)
    assert has_remedy(str(refused.value))
    assert not list(tmp_path.glob("ckpt*"))


@pytest.fixture
def coordinator() -> Iterator[dl.coordinator.ClusterCoordinator]:
    cluster = dl.ClusterSpec({"worker": ["newer-a:1"], "ps": ["newer-b:1"]})
    servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    yield dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
    for server in servers:
        server.stop()


def test_a_coordinator_refuses_arguments_that_are_no_tuple(coordinator: Any) -> None:
    for args in (1, "ab", jnp.ones(2)):
        with pytest.raises(ValueShapeError, match=r"args=\(x,\)"):
            coordinator.schedule(abs, args=args)
    with pytest.raises(ValueShapeError, match="kwargs must be a dict"):
        coordinator.schedule(abs, kwargs=[1])
    assert coordinator.schedule(abs, args=[-1]).fetch() == 1
    assert coordinator.schedule(int, None, None).fetch() == 0


def test_a_function_does_not_wait_for_itself(coordinator: Any) -> None:
    result = coordinator.schedule(coordinator.join)
    with pytest.raises(ContextError, match=r"wait for that function itself\. Call it"):
        result.fetch()
    with pytest.raises(ContextError):
        coordinator.join()
    assert coordinator.schedule(abs, (-2,)).fetch() == 2


def test_a_spec_is_of_float32_unless_it_says_otherwise() -> None:
    assert Spec((None, np.int64(2))) == Spec([None, 2], "float32")


def test_a_checkpoint_takes_what_holds_itself(tmp_path: Path) -> None:
    variable = dl.Variable(1.0)
    whole = dl.train.Checkpoint(variable=variable)
    whole.part = dl.train.Checkpoint(whole=whole, more=[jnp.ones(2)])
    nest: list[Any] = [2.0]
    nest.append(nest)
    whole.nest = nest
    path = whole.save(tmp_path / "ckpt")
    variable.assign(3.0)
    nest[0] = 4.0
    whole.restore(path)
    assert float(variable.numpy()) == 1.0
    assert whole.nest[0] == 2.0
    assert jax.tree.leaves({"jax": 1, "is": 2, "well": 3}) == [2, 1, 3]

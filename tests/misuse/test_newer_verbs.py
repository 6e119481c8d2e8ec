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
from distlab.coordinator import ClusterCoordinator
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    DistlabError,
    InvalidArgumentError,
    StructureError,
    ValueShapeError,
)
from tests.misuse.table import require_refusal
from tests.strategies.parameter_servers import strategy_of

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
    "deletion of save_counter": (
        lambda _: delattr(dl.train.Checkpoint(), "save_counter"),
        ArgumentValueError,
        "has save_counter itself",
    ),
    "deletion of a verb": (
        lambda _: delattr(dl.train.Checkpoint(), "save"),
        ArgumentValueError,
        "has save itself",
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
    require_refusal(lambda: call(tmp_path), kind, names)
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


def test_parts_for_other_numbers_of_workers_are_refused(coordinator: Any) -> None:
    made: Any = dl.coordinator.PerWorkerValue
    for wrong in (3, "ab", {"a": 1}):
        with pytest.raises(ArgumentTypeError, match="needs a list of the workers' values"):
            made(wrong)
    others = ClusterCoordinator(strategy_of(1, workers=2))
    dataset = others.create_per_worker_dataset(Dataset.range(3))
    for value in (made([]), made([1, 2]), dataset, iter(dataset)):
        with pytest.raises(StructureError, match=r"was passed to a strategy of 1\. Make"):
            coordinator.schedule(abs, ([value],))
    assert coordinator.schedule(abs, (made([-3]),)).fetch() == 3


def test_what_is_traced_schedules_nothing(coordinator: Any) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    traces: list[Any] = [lambda f: strategy.run(f, args=(1,)), lambda f: jax.jit(f)(1)]
    for trace in traces:
        with pytest.raises(ContextError, match=r"this once, and not at later calls\. Call"):
            trace(lambda x: coordinator.schedule(abs, (x,)))
    eagerly = dl.RunOptions(run_eagerly=True)
    results = strategy.run(lambda: coordinator.schedule(abs, (-1,)).fetch() + 0.5, options=eagerly)
    assert [float(value) for value in results.values] == [1.5, 1.5]


def no_dataset() -> None:
    """Forgets its return statement."""


def test_a_workers_dataset_is_an_iterable_of_batches(coordinator: Any) -> None:
    make = coordinator.create_per_worker_dataset
    with pytest.raises(StructureError, match=r"^no_dataset must return.* but returned None\. Ret"):
        make(no_dataset)
    wrong: Any
    for wrong in (1, jnp.ones(2), "ab", {"x": 1}, (1, 2)):
        with pytest.raises(StructureError, match="<lambda> must return a worker's dataset"):
            make(lambda wrong=wrong: wrong)
    for wrong in (None, 1, "ab", np.ones(2), iter([1])):
        with pytest.raises(StructureError, match="function without arguments that makes it"):
            make(wrong)
    batches = iter(make([1, 2]))
    assert [coordinator.schedule(next, (batches,)).fetch() for _ in range(2)] == [1, 2]


def test_a_function_does_not_wait_for_itself(coordinator: Any) -> None:
    result = coordinator.schedule(coordinator.join)
    with pytest.raises(ContextError, match=r"wait for that function itself\. Call it"):
        result.fetch()
    with pytest.raises(ContextError):
        coordinator.join()
    assert coordinator.schedule(abs, (-2,)).fetch() == 2


def test_a_spec_is_of_float32_unless_it_says_otherwise() -> None:
    assert Spec((None, np.int64(2))) == Spec([None, 2], "float32")


def test_a_checkpoint_forgets_an_object_that_is_deleted(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(a=dl.Variable(1.0), b=dl.Variable(2.0))
    whole = checkpoint.save(tmp_path / "ckpt")
    del checkpoint.b
    assert not hasattr(checkpoint, "b")
    with pytest.raises(AttributeError, match=r"no b\. It has \['a'\]"):
        del checkpoint.b
    saved = dl.train.list_variables(checkpoint.save(tmp_path / "ckpt"))
    assert [name for name, _ in saved] == ["a"]
    checkpoint.a.assign(3.0)
    assert checkpoint.restore(whole).unused == ("b",)
    assert float(checkpoint.a.numpy()) == 1.0


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

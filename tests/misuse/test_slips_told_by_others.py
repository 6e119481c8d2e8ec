"""Slips that Python, JAX or another library used to tell of, in words about their own insides."""

from __future__ import annotations

from collections.abc import Callable
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
    NotFoundError,
    StructureError,
    ValueShapeError,
)
from tests.misuse.table import require_harmless_refusal


def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def remote() -> Any:
    return dl.coordinator.RemoteValue(lambda _: None)


def set_element(value: Any = 1) -> None:
    v: Any = dl.Variable(jnp.zeros(3))
    v[0] = value


def add_to_element() -> None:
    v: Any = dl.Variable(jnp.zeros(3))
    v[1:] += 1


def mapped(fn: Callable[[Any], Any]) -> object:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
    over: Any = jax.shard_map(fn, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))
    return over(jnp.ones(2))


def add(a: Any, b: Any) -> Any:
    return a + b


WRONG: Final[dict[str, tuple[Callable[[], object], type[DistlabError], str]]] = {
    "a shape that is a number": (
        lambda: dl.widgets.explorer(shape=3),  # type: ignore[arg-type]
        ArgumentValueError,
        r"shape must be a tuple .* got 3\..*shape=\(3,\)",
    ),
    "records of a folder": (
        lambda: list(dl.data.TFRecordDataset(".")),
        NotFoundError,
        r"'\.' is a folder.*list_files\('\./\*'\)",
    ),
    "compressed records of a folder": (
        lambda: list(dl.data.TFRecordDataset(".", compression_type="GZIP")),
        NotFoundError,
        "is a folder",
    ),
    "records of a folder with brackets": (
        lambda: list(dl.data.TFRecordDataset(Path("a[1]"), compression_type="ZLIB")),
        NotFoundError,
        r"'a\[1\]' is a folder.*list_files\('a\[\[\]1\]/\*'\)",
    ),
    "the bytes of a folder": (lambda: dl.io.read_file("."), NotFoundError, "is a folder"),
    "a sum of a remote value": (
        lambda: jnp.add(remote(), 1),
        ValueShapeError,
        r"RemoteValue.*Call fetch\(\) on it",
    ),
    "a remote value in jit": (
        lambda: jax.jit(lambda x: x)(remote()),
        ValueShapeError,
        r"Call fetch\(\) on it",
    ),
    "a remote value on a device": (lambda: jax.device_put(remote()), ValueShapeError, "fetch"),
    "a number for an element": (
        set_element,
        ArgumentTypeError,
        r"got an assignment to its \[0\].*v\.assign\(v\.value\(\)\.at\[index\]\.set\(value\)\)",
    ),
    "a number added to elements": (add_to_element, ArgumentTypeError, r"\[slice\(1, None, None\)"),
    "specs in a list": (
        lambda: dl.export(add, [jnp.ones(2), jnp.ones(2)]),
        StructureError,
        r"export calls add .* got 1 spec: .*'b'.*a list of specs is one argument",
    ),
    "more specs than parameters": (
        lambda: dl.export(add, (jnp.ones(2),) * 3),
        StructureError,
        "got 3 specs: .*were given",
    ),
    "run in pmap": (
        lambda: jax.pmap(lambda x: strategy().run(lambda: x))(jnp.ones(2)),
        ContextError,
        r"inside jax\.pmap, which has divided",
    ),
    "run of an argument in pmap": (
        lambda: jax.pmap(lambda x: strategy().run(jnp.sin, args=(x,)))(jnp.ones(2)),
        ContextError,
        r"inside jax\.pmap",
    ),
    "run in shard_map": (
        lambda: mapped(lambda x: strategy().reduce("SUM", strategy().run(lambda: x), axis=None)),
        ContextError,
        r"inside jax\.shard_map \(axes data\)",
    ),
    "run on one device in shard_map": (
        lambda: mapped(lambda x: dl.OneDeviceStrategy("CPU:0").run(jnp.sin, args=(x,))),
        ContextError,
        "shard_map",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_is_refused_with_the_rule_the_value_and_the_remedy(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a[1]").mkdir()
    require_harmless_refusal(tmp_path, monkeypatch, *WRONG[wrong])


def test_the_pattern_that_a_message_names_lists_the_files_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run[1]"
    folder.mkdir()
    (folder / "x").write_bytes(b"x")
    with pytest.raises(NotFoundError) as refused:
        dl.io.read_file(folder)
    pattern = str(refused.value).rpartition("list_files('")[2].removesuffix("').")
    assert list(dl.data.Dataset.list_files(pattern).map(dl.io.read_file)) == [b"x"]


def test_the_remedy_for_an_element_sets_it() -> None:
    v = dl.Variable(jnp.zeros(3))
    v.assign(v.value().at[0].set(1))
    assert v.numpy().tolist() == [1, 0, 0]


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_batch_that_is_passed_as_one_argument_is_told_so(eagerly: bool) -> None:
    both = strategy()
    batch = (jnp.ones(2), jnp.ones(2))
    options = dl.RunOptions(run_eagerly=eagerly)
    with pytest.raises(TypeError, match="required positional argument: 'b'") as raised:
        both.run(add, args=(batch,), options=options)
    assert "Write args=batch to pass each part as an argument of add." in "".join(
        raised.value.__notes__
    )
    assert both.run(add, args=batch, options=options).values[1].tolist() == [2, 2]


@pytest.mark.parametrize("args", [((1.0, 2.0, 3.0),), (1.0,), ((1.0,),)])
def test_another_number_of_arguments_has_no_note_of_batches(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="required positional argument: 'b'") as raised:
        strategy().run(add, args=args)
    assert "args=batch" not in "".join(raised.value.__notes__)


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda v: jnp.ones(2) @ v.value,
        lambda v: v.value * 2,
        lambda v: v.value[0],
        lambda v: v.value.shape,
        lambda v: jnp.sum(v.value),
        lambda v: jnp.zeros_like(v.value),
        lambda v: jax.grad(jnp.sum)(v.value),
        lambda v: v.assign(v.value),
        lambda v: dl.get_replica_context().all_reduce("SUM", v.value),
    ],
)
def test_a_value_of_a_variable_that_is_not_called_is_told_so(
    fn: Callable[[Any], object], eagerly: bool
) -> None:
    both = strategy()
    with both.scope():
        v = dl.Variable(jnp.ones(2))
    options = dl.RunOptions(run_eagerly=eagerly)
    with pytest.raises((TypeError, AttributeError, ValueShapeError)) as raised:
        both.run(lambda: fn(v), options=options)
    assert "write variable.value()" in "".join(raised.value.__notes__)

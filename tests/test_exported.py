"""Functions that are exported with the arrays they use, and loaded without their code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    CheckpointError,
    ContextError,
    DataLossError,
    NotFoundError,
    ValueShapeError,
)
from distlab.exported import Exported

CALLBACK = "xla_ffi_python_cpu_callback"
ROWS = dl.data.TensorSpec((None, 3), np.dtype("float32"))
X = np.random.default_rng(0).normal(size=(13, 3)).astype("float32")


def linear(strategy: dl.Strategy) -> Any:
    with strategy.scope():
        w = dl.Variable(np.arange(6, dtype="float32").reshape(3, 2), name="w")
        b = dl.Variable(jnp.ones(2, jnp.bfloat16), name="b")
    return lambda x: {"y": x @ w.value() + b.value(), "rows": x.shape[0]}


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_loaded_function_gives_the_same_everywhere(eagerly: bool, tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    fn = linear(strategy)
    exported = dl.export(fn, ROWS)
    loaded = dl.load_exported(exported.save(tmp_path / "m.dlx"))
    wanted = np.asarray(X @ np.arange(6, dtype="float32").reshape(3, 2) + 1)
    for each in (exported, loaded, jax.jit(loaded)):
        np.testing.assert_allclose(each(X)["y"], wanted, rtol=1e-5, atol=1e-5)
    assert loaded(X)["rows"] == 13
    batches = strategy.experimental_distribute_dataset(dl.data.Dataset.from_tensors(X))
    options = dl.RunOptions(run_eagerly=eagerly)
    for x in batches:  # 5, 5 and 3 rows
        results = strategy.run(loaded, args=(x,), options=options)
        rows = np.concatenate([np.asarray(part) for part in results["y"].values])
        np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-5)


PLAIN = """
import sys
import numpy as np
import distlab as dl
print(dl.load_exported(sys.argv[1])(np.ones((2, 3), "float32"))["y"].tolist())
"""


def test_another_process_needs_none_of_the_code(tmp_path: Path) -> None:
    path = dl.export(linear(dl.get_strategy()), ROWS).save(tmp_path / "m.dlx")
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, path], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[[7.0, 10.0], [7.0, 10.0]]"


def test_variables_keep_the_values_of_the_export() -> None:
    on_read = dl.VariableSynchronization.ON_READ
    with dl.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        v = dl.Variable(1.0)
        mean = dl.Variable(0.5, synchronization=on_read, aggregation=dl.VariableAggregation.MEAN)
    exported = dl.export(lambda x: x * v.value() + mean.value(), jnp.ones(2))
    v.assign(100.0)
    assert exported(jnp.ones(2)).tolist() == [1.5, 1.5]
    assert len(exported.arrays) == 2


def test_several_arguments_nests_and_sizes() -> None:
    spec = (
        {"a": dl.data.TensorSpec((None, None), np.dtype("int64")), "b": jnp.ones((), jnp.int32)},
        jax.ShapeDtypeStruct((2,), jnp.float32),
    )
    exported = dl.export(lambda nest, y: (nest["a"].sum(1) + nest["b"], [y]), spec)
    total, (y,) = exported({"a": np.ones((4, 5), "int32"), "b": np.int32(2)}, jnp.zeros(2))
    assert (total.tolist(), y.tolist()) == ([7, 7, 7, 7], [0, 0])


def test_models_of_other_libraries_go_along(tmp_path: Path) -> None:
    keyed = jax.random.key(0)
    network = eqx.nn.MLP(3, 2, 4, 1, key=keyed)
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    functions: list[Callable[[Any], Any]] = [
        jax.vmap(network),
        module,
        lambda x: x + jax.random.normal(keyed, (3,)),
        lambda x: x + 1,
    ]
    for fn in functions:
        loaded = dl.load_exported(dl.export(fn, ROWS).save(tmp_path / "m.dlx"))
        np.testing.assert_allclose(loaded(X), fn(X), rtol=1e-5, atol=1e-6)


def test_a_replica_function_may_be_exported_for_one_platform() -> None:
    exported = dl.export(lambda x: x + 1, ROWS, platforms=["cpu"])
    assert repr(exported) == "Exported(float32[b,3] on cpu)"


def test_what_can_t_be_exported_is_refused() -> None:
    v = dl.Variable(1.0)
    wrong: Any = 5
    with pytest.raises(ArgumentTypeError, match="needs a function first"):
        dl.export(wrong, ROWS)
    with pytest.raises(ArgumentTypeError, match="A spec must be"):
        dl.export(lambda x: x, [None, 3])
    with pytest.raises(ArgumentTypeError, match="A spec must be"):
        dl.export(lambda x: x, dl.data.TensorSpec((None,), np.dtype(object)))
    with pytest.raises(ContextError, match="is assigned by the function that is exported"):
        dl.export(lambda x: v.assign_add(x.sum()).value(), ROWS)
    assert float(v) == 1.0


def test_a_function_of_several_replicas_is_refused() -> None:
    for function in (
        lambda x: dl.get_replica_context().all_reduce("SUM", x),
        lambda x: dl.get_replica_context().merge_call(lambda _, y: y, (x,)),
    ):
        with pytest.raises(ContextError, match="was used by the function that is exported"):
            dl.export(function, ROWS)
    exported = dl.export(lambda x: x * dl.get_replica_context().num_replicas_in_sync, ROWS)
    assert exported(np.ones((1, 3), np.float32)).tolist() == [[1.0] * 3]


def test_arguments_that_do_not_fit_are_refused() -> None:
    exported = dl.export(lambda x: x * 2, ROWS)
    for args in ((), (X, X)):
        with pytest.raises(ValueShapeError, match=f"takes 1 argument, got {len(args)}"):
            exported(*args)
    for wrong in (np.ones((2, 4), "float32"), np.ones((2, 3), "int32"), {"a": X}):
        with pytest.raises(ValueShapeError, match="arguments that do not fit"):
            exported(wrong)


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_file_is_an_error(how: str, tmp_path: Path) -> None:
    path = Path(dl.export(linear(dl.get_strategy()), ROWS).save(tmp_path / "m.dlx"))
    whole = path.read_bytes()
    if how == "flipped":
        place = whole.index(np.arange(6, dtype="float32").tobytes()) + 5
        data = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    else:
        data = whole[: len(whole) // 2]
    path.write_bytes(data)
    with pytest.raises(DataLossError, match="is no exported function, or it is damaged"):
        dl.load_exported(path)


def rewritten(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as held:
        kept = {name: held.read(name) for name in held.namelist()} | parts
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in kept.items():
            file.writestr(name, data)


def test_a_file_that_unpacks_to_more_is_not_read(tmp_path: Path) -> None:
    path = Path(dl.export(lambda x: x, ROWS).save(tmp_path / "m.dlx"))
    rewritten(path, {"arrays/0": bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataLossError, match="would unpack to more bytes than it has"):
        dl.load_exported(path)


def test_a_program_with_calls_into_the_process_is_refused(tmp_path: Path) -> None:
    from jax import export as exporting  # flatbuffers

    call = jax.ffi.ffi_call(CALLBACK, jax.ShapeDtypeStruct((3,), "float32"))
    unchecked = [exporting.DisabledSafetyCheck.custom_call(CALLBACK)]
    program = exporting.export(jax.jit(lambda _, x: call(x)), disabled_checks=unchecked)
    forms: Any = (), jax.ShapeDtypeStruct((3,), "float32")
    path = Exported(program(*forms), []).save(tmp_path / "m.dlx")
    with pytest.raises(DataLossError, match=f"calls {CALLBACK} in the process"):
        dl.load_exported(path)


def test_a_file_with_a_program_of_derivatives_is_refused(tmp_path: Path) -> None:
    exported = dl.export(lambda x: x * x, dl.data.TensorSpec([3], "float32"))
    path = Path(exported.save(tmp_path / "m.dlx"))
    rewritten(path, {"program.jax": bytes(exported.program.serialize(vjp_order=1))})
    with pytest.raises(DataLossError, match="holds derivatives"):
        dl.load_exported(path)


def test_paths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    exported = dl.export(lambda x: x, ROWS)
    with pytest.raises(CheckpointError, match="could not be written"):
        exported.save(tmp_path)
    (tmp_path / "file").write_text("text")
    with pytest.raises(CheckpointError, match="could not be written"):
        exported.save(tmp_path / "file" / "model.dlx")
    (tmp_path / "file").unlink()
    with pytest.raises(NotFoundError, match="There is no exported function"):
        dl.load_exported(tmp_path / "missing")
    assert [*tmp_path.parent.glob("*.new"), *tmp_path.iterdir()] == []


def test_a_replica_without_examples_has_empty_results(tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    exported = dl.export(lambda x: {"y": 2 * x, "pair": jnp.concatenate((x, x)) > 0}, ROWS)
    loaded = dl.load_exported(exported.save(tmp_path / "m.dlx"))
    nothing = loaded(X[:0])
    assert {k: (v.shape, v.dtype) for k, v in nothing.items()} == {
        "y": ((0, 3), jnp.float32),
        "pair": ((0, 3), jnp.bool_),
    }
    for x in strategy.experimental_distribute_dataset(dl.data.Dataset.from_tensors(X[:4])):
        results = strategy.run(loaded, args=(x,))  # 2, 2 and no rows
        assert [len(part) for part in results["pair"].values] == [4, 4, 0]
        np.testing.assert_allclose(strategy.gather(results["y"], axis=0), 2 * X[:4])


def test_a_result_that_needs_an_example_is_refused_without_any() -> None:
    mean = dl.export(lambda x: x.mean(), ROWS)
    with pytest.raises(ValueShapeError, match=r"without examples, .* float32\[\] .*Call it with"):
        mean(X[:0])
    with pytest.raises(ValueShapeError, match="do not fit"):
        mean(np.zeros((0, 4), np.float32))
    assert mean(X).shape == ()

"""The private parts of JAX that distlab uses exist and do what distlab expects.

JAX may change them in any release. Then the table names the one that moved, and the tests below it
the one that does something else. Forked children are tried in tests/profiling/test_capture.py.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab.devices import jax_internals

CONFIG: Any = jax.config


def _rows(devices: int = 3) -> NamedSharding:
    return NamedSharding(
        Mesh(np.array(jax.devices()[:devices]), ("replica",)), PartitionSpec("replica")
    )


PRIVATE_PARTS = {
    "jax._src.api_util": ["InternalFloatingPointError"],
    "jax._src.array": [
        "ArrayImpl._arrays",
        "ArrayImpl._value.fget",
        "ArrayImpl.block_until_ready",
        "ArrayImpl.clone",
        "ArrayImpl.is_ready",
    ],
    "jax._src.config": ["config_states", "explicit_device_put_scope", "trace_context"],
    "jax._src.core": [
        "EvalTrace.process_primitive",
        "ShapedArray",
        "eval_context",
        "extend_axis_env_nd",
        "pytype_aval_mappings",
        "trace_ctx.trace",
    ],
    "jax._src.distributed": [
        "global_state.client",
        "global_state.initialize_preemption_sync_manager",
        "global_state.preemption_sync_manager",
    ],
    "jax._src.interpreters.partial_eval": ["DynamicJaxprTrace"],
    "jax._src.interpreters.pxla": ["MeshExecutable.create_cpp_call", "batched_device_put"],
    "jax._src.lax.parallel": ["_psum"],
    "jax._src.profiler": ["_profile_state.lock"],
    "jax._src.xla_bridge": ["backends_are_initialized"],
    "jax.extend.core": ["Jaxpr", "Literal", "jaxprs_in_params", "set_current_trace"],
    "jax.interpreters.partial_eval": ["dce_jaxpr"],
    "jaxlib._jax": [
        "config.unset",
        "get_distributed_runtime_client",
        "get_distributed_runtime_service",
        "make_gloo_tcp_collectives",
        "register_canonicalize_value_handler",
    ],
    "jaxlib._profiler": ["ProfilerSession"],
    "jaxlib.xla_client": ["batched_block_until_ready"],
}
SOURCE = Path(jax_internals.__file__)


def test_each_private_part_of_jax_is_where_it_was() -> None:
    moved = []
    for module, names in PRIVATE_PARTS.items():
        found = importlib.import_module(module)
        for name in names:
            try:
                attrgetter(name)(found)
            except AttributeError:
                moved.append(f"{module}.{name}")
    assert not moved


@pytest.mark.slow
def test_one_small_module_alone_imports_private_parts() -> None:
    private = {name for name in PRIVATE_PARTS if name.startswith("jax._src")}
    assert len(private) <= 10
    assert len(SOURCE.read_text().splitlines()) <= 400
    assert set(_imported(SOURCE)) == private
    package = SOURCE.parents[1]
    others = [path for path in package.rglob("*.py") if path != SOURCE and _imported(path)]
    assert not others


def _imported(path: Path) -> list[str]:
    """The modules of `jax._src` that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module in {"jax._src", "jax._src.lax", "jax._src.interpreters"}
            found += [f"{node.module}.{n.name}" for n in node.names] if whole else [node.module]
    return [name for name in found if name.startswith("jax._src")]


def test_nothing_of_jax_is_replaced_outside_of_blocks() -> None:
    parallel = importlib.import_module("jax._src.lax.parallel")
    theirs = parallel._psum
    with jax_internals.sums_of_numbers("replica", lambda number: number != 1):
        assert parallel._psum is not theirs
        (row,) = jax.make_jaxpr(
            lambda: jax.lax.psum(3, "replica"), axis_env=[("replica", 2)]
        )().eqns
        assert row.primitive.name == "psum"
        one = jax.make_jaxpr(lambda: jax.lax.psum(1, "replica"), axis_env=[("replica", 2)])()
        assert not one.eqns
    assert parallel._psum is theirs
    assert not hasattr(jax_internals.ConcreteArray.block_until_ready, "explains")


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_name_their_generator_and_show_their_data(impl: str) -> None:
    key = jax.random.key(7, impl=impl)
    assert jax_internals.key_impl(key.dtype) == impl
    assert np.array_equal(jax_internals.plain(key), jax.random.key_data(key))
    assert jax_internals.plain(3) == 3


def test_the_configuration_differs_where_a_trace_would() -> None:
    usual = jax_internals.configuration()
    assert usual == jax_internals.configuration()
    for changed in (
        jax.enable_x64(True),
        jax.threefry_partitionable(False),
        jax.default_matmul_precision("float32"),
        jax.numpy_dtype_promotion("strict"),
    ):
        with changed:
            assert jax_internals.configuration() != usual
    assert jax_internals.configuration() == usual


def test_settings_of_a_block_go_along_to_another_thread() -> None:
    def dtype_and_precision() -> tuple[str, Any]:
        return str(jnp.arange(2.0).dtype), CONFIG.jax_default_matmul_precision

    with jax.enable_x64(True), jax.default_matmul_precision("float32"):
        run = jax_internals.copied_context()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, dtype_and_precision).result() == ("float64", "float32")
        assert pool.submit(dtype_and_precision).result() == ("float32", None)


def test_traces_differ_inside_and_outside_of_transformations() -> None:
    outside = jax_internals.current_trace()
    seen: list[tuple[bool, bool, bool]] = []

    def look(x: Any) -> Any:
        new = jax_internals.current_trace() is not outside
        seen.append((new, jax_internals.being_staged(), jax_internals.being_transformed()))
        return x

    look(1.0)
    jax.jit(look)(1.0)
    jax.vmap(look)(jnp.ones(2))
    jax.lax.scan(lambda carry, x: (look(carry), x), 0.0, jnp.ones(2))
    assert seen == [
        (False, False, False),
        (True, True, True),
        (True, False, True),
        (True, True, True),
    ]


def test_pieces_are_the_shards_in_the_order_of_the_devices() -> None:
    array = jax.device_put(np.arange(6.0).reshape(3, 2), _rows())
    pieces = jax_internals.pieces(array)
    assert [piece.tolist() for piece in pieces] == [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, 5.0]]]
    assert [piece.devices() for piece in pieces] == [{device} for device in jax.devices()[:3]]
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        jax_internals.pieces(array)
    assert jax_internals.devices_of(array) == jax.devices()[:3]


def test_the_profiler_is_reserved_and_given_back(tmp_path: Any) -> None:
    with jax_internals.profiler_reserved() as free:
        assert free is True
        with jax_internals.profiler_reserved() as again:
            assert again is False
    with jax.profiler.trace(str(tmp_path)), jax_internals.profiler_reserved() as free:
        assert free is False


def test_a_program_keeps_an_argument_where_jax_runs_python() -> None:
    keeps, gives, x = (jax.device_put(np.full(3, n, np.float32), _rows()) for n in range(3))
    program = jax.jit(lambda x, keeps, gives: [x + 1, keeps + 1, gives + 1], donate_argnums=(1, 2))
    keeping, fast = jax_internals.calls_of(program.lower(x, keeps, gives).compile(), 1)
    known: Any = jax_internals.cache_size(fast)
    assert known() == 0
    _, kept, given = fast(x, keeps, gives)
    assert (keeps.is_deleted(), gives.is_deleted(), known()) == (False, True, 1)
    keeping(x, kept, given)
    assert (kept.is_deleted(), given.is_deleted()) == (False, True)
    results = fast(x, kept, jnp.copy(kept))  # of C++ alone
    assert (kept.is_deleted(), known()) == (True, 1)
    np.testing.assert_array_equal(results, np.array([[3] * 3, [2] * 3, [2] * 3]))


def test_an_error_of_awaited_arrays_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays: Any = jax_internals.ConcreteArray
    internals: Any = jax_internals
    for name in ("_value", "block_until_ready"):
        monkeypatch.setattr(arrays, name, getattr(arrays, name))

    def fail(arrays: list[jax.Array]) -> None:
        raise jax.errors.JaxRuntimeError(f"{len(arrays)} arrays: connection closed")

    @contextmanager
    def reading() -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LookupError("worker 1 was killed") from error

    monkeypatch.setattr(internals._xla_client, "batched_block_until_ready", fail)
    jax_internals.read_within(reading)
    with pytest.raises(LookupError, match="worker 1 was killed"):
        jax.block_until_ready([jnp.ones(1), jnp.ones(2)])

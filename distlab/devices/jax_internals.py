"""The parts of JAX without a public name that distlab needs, each behind a name of its own."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

import jax
import numpy as np
from jax._src import config as _config
from jax._src import core as _core
from jax._src import distributed as _distributed
from jax._src import profiler as _profiler
from jax._src import xla_bridge as _xla_bridge
from jax._src.api_util import InternalFloatingPointError
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla as _pxla
from jax._src.interpreters.partial_eval import DynamicJaxprTrace as _DynamicJaxprTrace
from jax._src.lax import parallel as _parallel
from jax.extend.core.primitives import psum_p
from jaxlib import _jax as _jaxlib
from jaxlib import xla_client as _xla_client
from jaxlib._profiler import ProfilerSession as _Session  # type: ignore[import-not-found]

FoundNotFinite = InternalFloatingPointError
"""The error of a compiled program in which `jax_debug_nans` or `jax_debug_infs` finds something."""

ConcreteArray = ArrayImpl
"""The class of concrete arrays; tracers are instances of `jax.Array`, too."""

EvalTrace: Any = _core.EvalTrace
"""The class of the trace that computes at once."""

Computation: Any = getattr(_pxla, "MeshComputation", None)
"""The class whose method `compile` compiles for all ways to jit; None where JAX has none."""

_OF_ONE_THREAD: Final = ("jax_default_device", "jax_transfer_guard", "jax_thread_guard")
"""Prefixes of settings that other threads choose for themselves, or must not have."""

_Setting: Any = _jaxlib.config.Config
_LOCAL: Final = (
    *(_core.trace_state, _core.trace_state_strong_ref, _core.axis_env_state),
    *(one for one in vars(_config).values() if isinstance(one, _Setting)),
)

_taking_apart: Final = threading.RLock()


def backend_started() -> bool:
    """Returns whether JAX has started its devices, after which settings have no effect."""
    return bool(_xla_bridge.backends_are_initialized())


def coordination_client() -> Any:
    """Returns the client of JAX's coordination service; None where no process has joined."""
    return _distributed.global_state.client


def start_preemption_service() -> None:
    """Has JAX note SIGTERM and pass it on to the other processes, once in a program."""
    state: Any = _distributed.global_state
    if state.preemption_sync_manager is None:
        jax.config.update("jax_enable_preemption_service", True)
        state.initialize_preemption_sync_manager()


def connect(address: str, processes: int, index: int, heartbeat: int) -> None:
    """Connects this process to a coordination service; waits a week: JAX then ends the process."""
    client = cast(Any, _jaxlib).get_distributed_runtime_client(
        address, index, init_timeout=604_800, use_compression=True, heartbeat_timeout=heartbeat
    )
    client.connect()
    state = {"coordinator_address": address, "num_processes": processes, "process_id": index}
    vars(_distributed.global_state).update(state, client=client)


def disconnect() -> None:
    """Leaves the coordination service; what waits in C++ for other processes fails at once."""
    state: Any = _distributed.global_state
    client, state.client = state.client, None
    if client is not None:
        client.shutdown()


@contextmanager
def gloo_listening(host: str | None) -> Iterator[None]:
    """Lets Gloo listen at a host while the devices start; None for that of the machine's name."""
    library: Any = _jaxlib
    make = library.make_gloo_tcp_collectives
    library.make_gloo_tcp_collectives = functools.partial(make, hostname=host)
    try:
        yield
    finally:
        library.make_gloo_tcp_collectives = make


def read_within(around: Callable[[], AbstractContextManager[None]]) -> None:
    """Lets reading an array, and waiting for it, happen within a context.

    It replaces methods of JAX, in programs of several processes alone, whose lost peers show there.
    """
    declared: Any = ArrayImpl
    client: Any = _xla_client
    if getattr(declared.block_until_ready, "within", False):
        return

    def within(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(arrays: Any) -> Any:
            with around():
                return function(arrays)

        cast(Any, call).within = True
        return call

    declared._value = property(within(declared._value.fget))
    declared.block_until_ready = within(declared.block_until_ready)
    client.batched_block_until_ready = within(client.batched_block_until_ready)


def uncommitted(array: Any) -> Any:
    """Returns an uncommitted view of an array on one device, which mixes with those of others."""
    if type(array) is not ArrayImpl or len(array.sharding.device_set) > 1:
        return array
    return ArrayImpl(array.aval, array.sharding, [array], committed=False)


def register_array_like(kind: type, read: Callable[[Any], jax.Array]) -> None:
    """Makes JAX accept objects of a class as arrays; `__jax_array__` serves `jnp` alone."""
    _core.pytype_aval_mappings[kind] = lambda held: jax.typeof(read(held))
    cast(Any, _jaxlib).register_canonicalize_value_handler(kind, read)


def key_impl(dtype: Any) -> str:
    """Returns the name of the random generator that keys of this dtype belong to."""
    return str(dtype._impl.name)


def plain(array: Any) -> Any:
    """Returns the data of an array of random keys; any other array unchanged."""
    return getattr(array, "_base_array", array)


class _Keeping:
    """An executable whose call copies the arrays of one argument, since an interrupt may end it."""

    def __init__(self, compiled: Any, position: int) -> None:
        self._call = compiled._executable.call
        counts = [len(jax.tree.leaves(argument)) for argument in compiled.args_info[0]]
        self._end, self._count = sum(counts[position:]), counts[position]  # from the last array

    def call(self, *arrays: Any) -> Any:
        """Runs the program; JAX passes its constants before the arguments."""
        last = (first := len(arrays) - self._end) + self._count
        return self._call(*arrays[:first], *map(with_copies, arrays[first:last]), *arrays[last:])


def calls_of(compiled: Any, position: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns two functions that run a program, in Python and in C++ (in Python if it calls that).

    Python deletes no array of the argument at `position`. C++ does, but where it has to call
    Python, as for other kinds of arrays than before.
    """
    params = compiled._params._replace(executable=_Keeping(compiled, position))

    def keeping(*args: Any) -> Any:
        return type(compiled).call(params, *args)[0]

    return keeping, compiled._executable.create_cpp_call(params) or keeping


configuration: Final[Callable[[], Hashable]] = _config.trace_context
"""Returns the settings on which traces depend, such as `enable_x64`, as `jax.jit` does."""


def copied_context() -> Callable[..., Any]:
    """Returns what calls a function with this thread's settings and context, in another thread."""
    context = contextvars.copy_context()
    states = _config.config_states.items()
    own = [state for name, state in states if not name.startswith(_OF_ONE_THREAD)]
    settings = [(state, state.get_local()) for state in own]
    chosen = [(state, value) for state, value in settings if value is not _jaxlib.config.unset]

    def run(function: Callable[..., Any], *args: Any) -> Any:
        with ExitStack() as stack:
            for state, value in chosen:
                stack.enter_context(state(value))
            return context.run(function, *args)

    return run


def local_state() -> list[Any]:
    """Returns this thread's settings of JAX, and its trace."""
    return [state.get_local() for state in _LOCAL]


def restore(local: list[Any]) -> None:
    """Gives this thread the settings and the trace that it had: all or none, as C does it."""
    list(map(_Setting.set_local, _LOCAL, local))


def current_trace() -> object:
    """Returns the trace that handles this thread's operations."""
    return _core.trace_ctx.trace


def count_as_eval_trace(trace: Any) -> None:
    """Makes a trace the same as the one that computes at once, for JAX's caches and Flax NNX."""
    trace._weakref = _core.eval_trace._weakref


def being_staged(*, within: object = None) -> bool:
    """Returns whether this thread stages operations into a program, by traces inside `within`."""
    trace: Any = _core.trace_ctx.trace
    while trace is not None and trace is not within:
        if isinstance(trace, _DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


@contextmanager
def outside_of_traces() -> Iterator[None]:
    """Computes at once in a block of code, within a function that JAX traces."""
    with _core.eval_context():
        yield


def being_transformed() -> bool:
    """Returns whether a JAX transformation (jit, grad, vmap, scan) is active in this thread."""
    return not isinstance(_core.trace_ctx.trace, _core.EvalTrace)


def named_axis(name: str, size: int) -> AbstractContextManager[None]:
    """Returns a context manager that binds an axis's name, as in a function that JAX maps."""
    return _core.extend_axis_env_nd([(name, size)])


_summing: ContextVar[tuple[str, Callable[[Any], bool]] | None] = ContextVar(
    "distlab_psum", default=None
)
_psum: Any = _parallel._psum
_blocks_with_sums = 0


@contextmanager
def sums_of_numbers(axis: str, differs: Callable[[Any], bool]) -> Iterator[None]:
    """Lets `psum` add numbers that differ between replicas, as of rows; JAX multiplies them."""
    token = _summing.set((axis, differs))
    _count_sums(1)
    try:
        yield
    finally:
        _count_sums(-1)
        _summing.reset(token)


def _count_sums(change: int) -> None:
    global _blocks_with_sums
    with _taking_apart:
        _blocks_with_sums += change
        _parallel._psum = _psum_of_numbers if _blocks_with_sums else _psum


def _psum_of_numbers(x: Any, axis_name: Any, *, axis_index_groups: Any, **options: Any) -> Any:
    axes = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    axis, differs = _summing.get() or (None, None)

    def theirs(leaf: Any) -> Any:
        return _psum(leaf, axis_name, axis_index_groups=axis_index_groups, **options)

    def summed(leaf: Any) -> Any:
        traced = isinstance(leaf, jax.core.Tracer)
        if differs is None or axes != (axis,) or not (traced or differs(leaf)):
            return theirs(leaf)
        if traced:  # XLA aborts the process where it simplifies a sum of complex numbers
            parts = (jax.lax.real(leaf), jax.lax.imag(leaf)) if jax.numpy.iscomplexobj(leaf) else ()
            return jax.lax.complex(*map(theirs, parts)) if parts else theirs(leaf)
        array = jax.numpy.asarray(leaf)
        number = array.astype("int32") if array.dtype == bool else array
        groups = axis_index_groups and tuple(map(tuple, axis_index_groups))
        return psum_p.bind(number, axes=axes, axis_index_groups=groups)

    return jax.tree.map(summed, x)


def pieces(array: jax.Array) -> list[jax.Array]:
    """Returns an array's shards in order; JAX gives one of two threads at once too few."""
    with _taking_apart:
        held = cast(ArrayImpl, array)._arrays
    if held is None:
        raise RuntimeError("Array has been deleted.")
    if len(held) < len(array.sharding.addressable_devices):
        # An interrupt while JAX (0.10) made the objects left some out.
        return pieces(jax.device_put(array, array.sharding, may_alias=False))
    return list(held)


def with_copies(array: jax.Array, count: int | None = None) -> jax.Array:
    """Returns an array of copies of the first pieces of another, and of its other pieces."""
    held = pieces(array)
    first = held[:count]
    copied = jax.device_put(first, [piece.sharding for piece in first], may_alias=False)
    together: Any = [*copied, *held[len(first) :]]
    aval = cast(ArrayImpl, array).aval
    result = ArrayImpl(aval, array.sharding, together, committed=True, _skip_checks=True)
    return cast(jax.Array, result)


def for_another_thread(array: jax.Array) -> jax.Array:
    """Returns an object of the same memory; asking one that is being deleted ends the process."""
    if array.is_deleted():  # where `clone` ends the process, too
        raise RuntimeError("Array has been deleted.")
    declared: Any = array
    if _distributed.global_state.client is not None and not array.is_fully_addressable:
        # `clone` asks for the devices of other processes, too.
        held: list[Any] = pieces(array)
        return assembler(declared)([piece.clone() for piece in held])
    own: jax.Array = declared.clone()
    return own


def is_ready(array: jax.Array) -> bool:
    """Returns whether an array is computed; another thread asks `for_another_thread(array)`."""
    return bool(cast(Any, array).is_ready())


def devices_of(array: jax.Array) -> list[jax.Device]:
    """Returns this process's devices of an array, even a deleted one, in order of its pieces."""
    here = jax.process_index()
    return [one for one in assigned_devices(array.sharding) if one.process_index == here]


def assigned_devices(sharding: Any) -> tuple[jax.Device, ...]:
    """Returns all devices of a sharding, in order of the pieces of its arrays."""
    return tuple(sharding._device_assignment)


def cache_size(fn: Any) -> Callable[[], int] | None:
    """Returns what counts the programs of a function of `jax.jit`; None for other functions."""
    size: Callable[[], int] | None = getattr(fn, "_cache_size", None)
    return size if type(fn).__name__ == "PjitFunction" else None


def assembler(shape: jax.ShapeDtypeStruct) -> Callable[[list[jax.Array]], jax.Array]:
    """Returns what makes a global array of pieces, 20 times faster than JAX, which checks them."""
    aval = _core.ShapedArray(shape.shape, shape.dtype)

    def assembled(pieces: list[jax.Array]) -> jax.Array:
        held: Any = pieces
        array = ArrayImpl(aval, shape.sharding, held, committed=True, _skip_checks=True)
        return cast(jax.Array, array)

    return assembled


def placing() -> AbstractContextManager[None]:
    """Returns a context whose transfers are asked for: `jax.transfer_guard` lets them pass."""
    return _config.explicit_device_put_scope()


def put_rows(rows: Sequence[Any] | np.ndarray, mesh: Any) -> jax.Array:
    """Puts a row on each replica's devices; `device_put` of the rows takes 10 times as long."""
    dtype, replicas = jax.dtypes.canonicalize_dtype(rows[0].dtype), mesh.replicas
    pieces = [row[np.newaxis].astype(dtype, copy=False) for row in rows]
    pieces = [piece for piece in pieces for _ in range(mesh.model)]
    aval = _core.ShapedArray((replicas, *rows[0].shape), dtype)
    with placing():
        array = _pxla.batched_device_put(aval, mesh.split, pieces, list(mesh.all_local_devices))
    return cast(jax.Array, array)


@contextmanager
def profiler_reserved() -> Iterator[bool]:
    """Reserves JAX's only profiler; a concurrent `jax.profiler.start_trace` waits meanwhile."""
    state = _profiler._profile_state
    if state.lock.locked():
        yield False
        return
    # An interrupt can't leave it locked, as it could between `acquire` and a `try`.
    with state.lock:
        yield getattr(state, "profile_session", getattr(state, "session", None)) is None  # 0.12


def free_profiler_after_fork() -> None:
    """Releases the profiler in a forked child, where the thread that held it does not exist."""
    state = _profiler._profile_state
    if state.lock.locked():
        state.lock.release()


def start_profile(options: Any) -> Any:
    """Starts a profile in memory; `jax.profiler` only writes profiles to files."""
    return _Session(options)

"""The parts of JAX without a public name that distlab needs, each behind a name of its own."""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any, Final, cast

import jax
import jax.extend.backend
import numpy as np
from jax._src import api as _api
from jax._src import config as _config
from jax._src import core as _core
from jax._src import distributed as _distributed
from jax._src import dtypes as _dtypes
from jax._src import profiler as _profiler
from jax._src import util as _util
from jax._src import xla_bridge as _xla_bridge
from jax._src.api_util import InternalFloatingPointError
from jax._src.array import ArrayImpl
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.interpreters import pxla as _pxla
from jax._src.interpreters.partial_eval import DynamicJaxprTrace as _DynamicJaxprTrace
from jax._src.lax import parallel as _parallel
from jax._src.lib import _profiler as _profiler_library
from jax.sharding import AxisType, NamedSharding
from jaxlib import _jax as _jaxlib
from jaxlib import xla_client as _xla_client

from distlab.errors import ContextError
from distlab.text.shown import shown_text

FoundNotFinite = InternalFloatingPointError
"""What a compiled program raises when `jax_debug_nans` or `jax_debug_infs` finds something."""

RuntimeFailure = jax.errors.JaxRuntimeError
"""What XLA raises when a program fails on the devices."""

ConcreteArray = ArrayImpl
"""The class of concrete arrays; tracers are instances of `jax.Array`, too."""

COLLECTIVES: Final = (
    *(_parallel.psum_p, _parallel.pmax_p, _parallel.pmin_p, _parallel.ppermute_p),
    *(_parallel.all_gather_p, _parallel.all_to_all_p, _parallel.reduce_scatter_p),
)
"""The operations over a named axis that users call; not all have a public name."""

_OF_ONE_THREAD: Final = ("jax_default_device", "jax_transfer_guard", "jax_thread_guard")
"""How the names of settings begin that other threads choose for themselves, or must not have."""

_DIFFERENTIATING: Final = (_ad.JVPTrace, _ad.LinearizeTrace)
_DIFFERENTIATED: Final = {
    **dict.fromkeys(("value_and_grad_f", "jacfun"), "dyn_args"),
    **dict.fromkeys(("vjp", "_vjp", "jvp", "_jvp", "linearize"), "primals"),
}
"""The functions of JAX that differentiate, and what they call the arrays by which they do."""

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


def connect(address: str, processes: int, index: int, seconds: int, heartbeat: int) -> None:
    """Connects this process to a coordination service that none of the processes hosts.

    `jax.distributed.initialize` would start a service in process 0.
    """
    state: Any = _distributed.global_state
    private: Any = _jaxlib
    client = private.get_distributed_runtime_client(
        address, index, init_timeout=seconds, use_compression=True, heartbeat_timeout=heartbeat
    )
    client.connect()
    state.coordinator_address = address
    state.num_processes = processes
    state.process_id = index
    state.client = client


def explain_failures(explain: Callable[[Exception], None]) -> None:
    """Lets another error be raised where an array tells that its program has failed.

    A program that waits for a lost process fails long after it was dispatched: its results
    raise when they are read, in JAX's own code.
    """
    declared: Any = ArrayImpl
    if getattr(declared.block_until_ready, "explains", False):
        return
    read, wait = declared._value.fget, declared.block_until_ready

    def value(array: Any) -> Any:
        try:
            return read(array)
        except (RuntimeFailure, ValueError) as error:
            explain(error)
            raise

    def block_until_ready(array: Any) -> Any:
        try:
            return wait(array)
        except (RuntimeFailure, ValueError) as error:
            explain(error)
            raise

    several: Any = _xla_client
    wait_for_all = several.batched_block_until_ready

    def batched_block_until_ready(arrays: Any) -> Any:
        try:
            return wait_for_all(arrays)
        except (RuntimeFailure, ValueError) as error:
            explain(error)
            raise

    cast(Any, block_until_ready).explains = True
    declared._value = property(value)
    declared.block_until_ready = block_until_ready
    several.batched_block_until_ready = batched_block_until_ready


def clear_backends() -> None:
    """Ends JAX's devices, so that they can be started again in another cluster."""
    jax.extend.backend.clear_backends()


def uncommitted(array: Any) -> Any:
    """Returns an uncommitted view of a single-device array; any other value unchanged.

    JAX refuses to compute with arrays that are committed to different devices, where
    TensorFlow copies. JAX copies uncommitted arrays, too.
    """
    if type(array) is not ArrayImpl or len(array.sharding.device_set) > 1:
        return array
    return ArrayImpl(array.aval, array.sharding, [array], committed=False)


def register_array_like(kind: type, read: Callable[[Any], jax.Array]) -> None:
    """Makes JAX accept the objects of a class wherever it accepts arrays.

    JAX's own protocol, `__jax_array__`, is for `jnp` functions alone, and pytree nodes have
    another structure than arrays.
    """
    _core.pytype_aval_mappings[kind] = lambda held: jax.typeof(read(held))
    cast(Any, _dtypes).register_canonicalize_value_handler(kind, read)


def key_impl(dtype: Any) -> str:
    """Returns the name of the random generator that keys of this dtype belong to."""
    return str(dtype._impl.name)


def plain(array: Any) -> Any:
    """Returns the data of an array of random keys; any other array unchanged."""
    return getattr(array, "_base_array", array)


def compiled_call(compiled: Any) -> Any:
    """Returns the C++ function that runs a compiled program; None where JAX has none."""
    call = getattr(compiled, "_call", None)
    return call if type(call).__name__ == "PjitFunction" else None


def checks_results() -> bool:
    """Returns whether JAX looks for NaN or infinity in results, and raises when it finds some."""
    config: Any = jax.config
    return bool(config.jax_debug_nans or config.jax_debug_infs)


configuration: Final[Callable[[], Hashable]] = _config.trace_context
"""Returns the settings on which traces depend, as `jax.jit` compares them.

Such as `enable_x64`, the default precision of products, and how random bits are made.
"""


@functools.cache
def _settings_that_go_along() -> list[Any]:
    states = _config.config_states.items()
    return [state for name, state in states if not name.startswith(_OF_ONE_THREAD)]


def copied_context() -> Callable[..., Any]:
    """Returns what calls a function with this thread's settings of JAX, in another thread, too.

    It passes on the arguments after the function. Settings of a `with` block, such as
    `jax.enable_x64(True)`, hold in one thread alone, like context variables, which go along.
    """
    context = contextvars.copy_context()
    settings = [(state, state.get_local()) for state in _settings_that_go_along()]
    chosen = [(state, value) for state, value in settings if value is not _jaxlib.config.unset]

    def run(function: Callable[..., Any], *args: Any) -> Any:
        with ExitStack() as stack:
            for state, value in chosen:
                stack.enter_context(state(value))
            return context.run(function, *args)

    return run


def current_trace() -> object:
    """Returns the trace that handles this thread's operations; each transformation has its own."""
    return _core.trace_ctx.trace


def being_staged(*, within: object = None) -> bool:
    """Returns whether this thread stages its operations into a program, as under `jit`.

    That may be a transformation around the present one: `jit` of a function that `grad` made.
    """
    return _is_inside(_DynamicJaxprTrace, within)


def _is_inside(kind: type | tuple[type, ...], within: object = None) -> bool:
    """Returns whether the present trace, or one around it up to `within`, is of a kind."""
    trace: Any = _core.trace_ctx.trace
    while trace is not None and trace is not within:
        if isinstance(trace, kind):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def require_not_staged(verb: str) -> None:
    """Checks that a verb computes at once, and not in a program that is being traced."""
    if being_staged():
        raise ContextError(
            f"{verb} takes values from the devices at once, and was called inside jax.jit or "
            "another function that is being traced, where they have none yet. Call it before, and "
            "pass what it returns as an argument."
        )


@contextmanager
def outside_of_traces() -> Iterator[None]:
    """Computes at once in a block of code, within a function that JAX traces."""
    with _core.eval_context():
        yield


def being_transformed() -> bool:
    """Returns whether a JAX transformation (jit, grad, vmap, scan) is active in this thread."""
    return not isinstance(_core.trace_ctx.trace, _core.EvalTrace)


def differentiated() -> list[Any]:
    """Returns the arrays by which JAX differentiates the caller in this thread.

    They are what was passed to `jax.grad`, `vjp`, `jvp` and the like, which keep them in their
    frames alone. There are none where nothing is differentiated.
    """
    if not _is_inside(_DIFFERENTIATING):
        return []
    found: list[Any] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        held_as = _DIFFERENTIATED.get(frame.f_code.co_name)
        if held_as and frame.f_code.co_filename == _api.__file__:
            found += jax.tree.leaves(frame.f_locals.get(held_as))
        frame = frame.f_back
    return found


def mapped_axes() -> tuple[str, ...]:
    """Returns the axes over which `jax.pmap` or `jax.shard_map` maps the caller; none elsewhere."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(str(name) for name, kind in axes if kind is AxisType.Manual)


def require_no_other_mesh(verb: str) -> None:
    """Checks that `jax.set_mesh` of a mesh of the user's is not in effect."""
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and not any(kind is AxisType.Manual for kind in mesh.axis_types):
        raise ContextError(
            f"{verb} was called under jax.set_mesh of a mesh with the axes "
            f"{', '.join(map(str, mesh.axis_names))}, and a strategy's programs run on a mesh of "
            "their own. Leave that block first, or give the mesh to NamedSharding and shard_map "
            "in place of jax.set_mesh."
        )


def require_compilation(verb: str) -> None:
    """Checks that JAX may compile."""
    if cast(Any, jax.config).jax_disable_jit:
        raise ContextError(
            f"{verb} compiles a program, which jax.disable_jit forbids; JAX_DISABLE_JIT in the "
            "environment does the same. Call distlab.run_functions_eagerly(True) in its place: "
            "replicas then run ordinary Python."
        )


def interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """Returns the interrupt of which JAX made another error; None where it made none.

    It does so where C++ calls Python: to compare structures or keys of caches, or to walk over a
    module that is compiled.
    """
    if not isinstance(error, ValueError | RuntimeError):
        return None
    if isinstance(error.__cause__, KeyboardInterrupt):
        return error.__cause__
    text = shown_text(error)
    last = text.rstrip().rpartition("\n")[2]
    hidden = "Traceback (most recent call last)" in text and last.startswith("KeyboardInterrupt")
    return KeyboardInterrupt() if hidden else None


def came_into_a_cache(interrupt: BaseException) -> bool:
    """Returns whether an interrupt may have left an entry of one of JAX's caches unfinished.

    Between making an entry and guarding it, such a cache asks a Python function whether misses
    are to be explained. What a signal's handler raises there leaves the entry.
    """
    return any(
        frame.f_code.co_name == "<lambda>" and frame.f_code.co_filename == _util.__file__
        for frame, _ in traceback.walk_tb(interrupt.__traceback__)
    )


def named_axis(name: str, size: int) -> AbstractContextManager[None]:
    """Returns a context manager that binds an axis's name, as in a function that JAX maps."""
    return _core.extend_axis_env_nd([(name, size)])


def sum_over_axis(axis: str, differs: Callable[[Any], bool]) -> None:
    """Makes `psum` over an axis right for values that are not traced, and for complex ones.

    JAX multiplies a value that is not traced by the size of the axis: in a function that it maps,
    it is the same on all replicas. XLA aborts the process where it simplifies a sum of complex
    numbers that all replicas know, as the gradient of a sum; so real and imaginary parts are
    summed, of which the sum's gradient is made, too.
    """
    theirs: Callable[..., Any] = _parallel._psum
    psum_of_array: Any = _parallel.psum_p

    def psum(x: Any, axis_name: Any, *, axis_index_groups: Any, **options: Any) -> Any:
        axes = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
        groups = axis_index_groups and tuple(map(tuple, axis_index_groups))
        sum_of = functools.partial(
            theirs, axis_name=axis_name, axis_index_groups=axis_index_groups, **options
        )
        if axes != (axis,):
            return sum_of(x)

        def summed(leaf: Any) -> Any:
            if isinstance(leaf, jax.core.Tracer):
                if not jax.numpy.issubdtype(leaf.dtype, jax.numpy.complexfloating):
                    return sum_of(leaf)
                return jax.lax.complex(sum_of(jax.lax.real(leaf)), sum_of(jax.lax.imag(leaf)))
            if not differs(leaf):
                return sum_of(leaf)
            array = jax.numpy.asarray(leaf)
            number = array.astype("int32") if array.dtype == bool else array
            return psum_of_array.bind(number, axes=axes, axis_index_groups=groups)

        return jax.tree.map(summed, x)

    _parallel._psum = psum


def part_of(equation: Any, output: int) -> Any:
    """Returns an equation that computes one output, and few others beside it."""
    variables = [atom for atom in equation.invars if not isinstance(atom, _core.Literal)]
    wanted = [equation.outvars[output]]
    inputs = list(dict.fromkeys(variables))
    (program, *_) = _core.jaxprs_in_params(equation.params)
    known = program.debug_info._replace(arg_names=("",) * len(inputs), result_paths=("",))
    alone: Any = _core.Jaxpr([], inputs, wanted, [equation], equation.effects, known)
    part, _ = part_of_jaxpr(alone, [True])
    return part.eqns[-1]


def part_of_jaxpr(jaxpr: Any, outputs: Sequence[bool]) -> tuple[Any, list[bool]]:
    """Returns an open jaxpr of some outputs alone, and for each input if it is needed."""
    part, used = _partial_eval.dce_jaxpr(jaxpr, list(outputs))
    return part, list(used)


def pieces(array: jax.Array) -> list[jax.Array]:
    """Returns an array's shard on each of its devices, in the order of the devices.

    `addressable_shards` returns the same 200 times slower. JAX makes the shards' objects when they
    are first asked for, and two threads that ask for them at once get some twice, or too few.
    """
    with _taking_apart:
        held = cast(ArrayImpl, array)._arrays
    if held is None:
        raise RuntimeError("Array has been deleted.")
    if len(held) < len(array.sharding.addressable_devices):
        # An interrupt while JAX (0.10) made the objects left some out for ever.
        return pieces(jax.device_put(array, array.sharding, may_alias=False))
    return list(held)


def with_copies(array: jax.Array, count: int | None = None) -> jax.Array:
    """Returns an array of copies of the first pieces of another, and of its other pieces.

    A copy by `device_put` needs no program, which would be compiled for each shape.
    """
    held = pieces(array)
    first = held[:count]
    copied = jax.device_put(first, [piece.sharding for piece in first], may_alias=False)
    together: Any = [*copied, *held[len(first) :]]
    aval = cast(ArrayImpl, array).aval
    result = ArrayImpl(aval, array.sharding, together, committed=True, _skip_checks=True)
    return cast(jax.Array, result)


def for_another_thread(array: jax.Array) -> jax.Array:
    """Returns an array object of the same memory, for a thread that asks whether it is ready.

    JAX ends the process where one thread asks while another deletes the same object. Deleting or
    donating the original frees the memory all the same: this one is deleted then, too.
    """
    if array.is_deleted():  # where `clone` ends the process, too
        raise RuntimeError("Array has been deleted.")
    if not array.is_fully_addressable:  # `clone` asks for the devices of other processes, too
        held: list[Any] = pieces(array)
        return assembler(cast(Any, array))([piece.clone() for piece in held])
    own: jax.Array = cast(Any, array).clone()
    return own


def is_ready(array: jax.Array) -> bool:
    """Returns whether an array, which must not be deleted, is computed.

    A thread that did not make the array asks its own: see `for_another_thread`. JAX's arrays
    have the method; the type `jax.Array` does not declare it.
    """
    declared: Any = array
    return bool(declared.is_ready())


def devices_of(array: jax.Array) -> list[jax.Device]:
    """Returns this process's devices of an array, even a deleted one, in order of its pieces."""
    sharding: Any = array.sharding
    here = jax.process_index()
    return [one for one in sharding._device_assignment if one.process_index == here]


def assembler(shape: jax.ShapeDtypeStruct) -> Callable[[list[jax.Array]], jax.Array]:
    """Returns a function that makes a global array of arrays on single devices.

    `make_array_from_single_device_arrays` checks each of them, which takes 20 times as long.
    """
    aval = _core.ShapedArray(shape.shape, shape.dtype)

    def assembled(pieces: list[jax.Array]) -> jax.Array:
        held: Any = pieces
        array = ArrayImpl(aval, shape.sharding, held, committed=True, _skip_checks=True)
        return cast(jax.Array, array)

    return assembled


def placing() -> AbstractContextManager[None]:
    """Returns a context whose transfers to devices are those of the verb that the user calls.

    As with `device_put`, `jax.transfer_guard("disallow")` lets them pass.
    """
    return _config.explicit_device_put_scope()


def moved(arrays: Any, device: jax.Device | jax.sharding.Sharding) -> Any:
    """Returns arrays that are divided over devices on one, as `device_put` does.

    JAX 0.12 copies them by way of the host, and takes that for a transfer that nobody asked for.
    """
    with jax.transfer_guard_device_to_host("allow"):
        return jax.device_put(arrays, device)


def put_rows(
    rows: Sequence[Any] | np.ndarray, sharding: NamedSharding, devices: Sequence[jax.Device]
) -> jax.Array:
    """Puts one row on each device.

    `make_array_from_callback` takes nearly twice as long, because it wraps and
    checks each row in Python.
    """
    dtype = jax.dtypes.canonicalize_dtype(rows[0].dtype)
    pieces = [row[np.newaxis].astype(dtype, copy=False) for row in rows]
    aval = _core.ShapedArray((sharding.mesh.size, *rows[0].shape), dtype)
    with placing():
        return cast(jax.Array, _pxla.batched_device_put(aval, sharding, pieces, list(devices)))


@contextmanager
def profiler_reserved() -> Iterator[bool]:
    """Reserves JAX's only profiler.

    JAX refuses to start a second profile. A concurrent `jax.profiler.start_trace`
    waits until the reservation ends, and then succeeds.
    """
    state = _profiler._profile_state
    if state.lock.locked():
        yield False
        return
    session = "session" if hasattr(state, "session") else "profile_session"  # until JAX 0.10
    # An interrupt can't leave it locked, as it could between `acquire` and a `try`.
    with state.lock:
        yield getattr(state, session) is None


def free_profiler_after_fork() -> None:
    """Releases the profiler in a forked child, where the thread that held it does not exist."""
    state = _profiler._profile_state
    if state.lock.locked():
        state.lock.release()


def start_profile(options: Any) -> Any:
    """Starts a profile in memory; `jax.profiler` only writes profiles to files."""
    return _profiler_library.ProfilerSession(options)


_ONE_EVENT = b"\x0a\x04\x1a\x02\x22\x00"
"""A serialised `XSpace` that holds one event: a plane, with a line, with the event."""


@functools.cache
def keep_profile_types() -> Iterator[Any]:
    """Makes the type of an event's statistics, and keeps it.

    jaxlib makes it when statistics are read, and drops it with the last of them. On
    Python 3.13 making it warns, which aborts the process where warnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        data = jax.profiler.ProfileData.from_serialized_xspace(_ONE_EVENT)
        events = (event for plane in data.planes for line in plane.lines for event in line.events)
        return iter(next(events).stats)

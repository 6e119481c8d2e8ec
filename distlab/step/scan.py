"""Several steps in one: `jax.lax.scan` whose body may assign variables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distlab.collectives.traced import TracedCollectives
from distlab.context import scopes
from distlab.errors import ContextError, DistlabError, StructureError, ValueShapeError
from distlab.text.shown import shown, shown_text
from distlab.values.checks import as_array, is_array_like
from distlab.values.distributed import DistributedValues
from distlab.variables import frames
from distlab.variables.protocol import StoredVariable
from distlab.variables.variable import is_variable

Body = Callable[[Any, Any], tuple[Any, Any]]


def scan(f: Body, init: Any, xs: Any = None, length: int | None = None) -> tuple[Any, Any]:
    """Runs `f` for each row of `xs`, in a replica function: several steps in one dispatch.

    Like `jax.lax.scan`, but `f` may also read and assign variables, and call collectives.
    The program holds `f` once, however many rows there are. In TensorFlow this is a loop
    `for _ in tf.range(n): strategy.run(step)` in a `tf.function`. When
    functions run eagerly it is a Python loop.

    Args:
      f: A function of the carry and one row that returns the next carry and one result.
      init: The first carry: an array or a nest of arrays; None for none.
      xs: An array or a nest of arrays whose first axis is the steps; None where `f` needs
        no rows.
      length: The number of steps; needed when `xs` has no arrays.

    Returns:
      The last carry, and the results of all steps, stacked along a new first axis.

    Raises:
      ContextError: The call is outside of a replica function.
      StructureError: `f` is not a function, or does not return a pair.
      ValueShapeError: The number of steps is not known, is 0, or differs between the arrays; or
        a leaf of `init` or `xs` is no array.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     total = dl.Variable(0.0)
      >>> def step(x):
      ...     total.assign_add(dl.get_replica_context().all_reduce("SUM", x))
      ...     return total.value()
      >>> def three_steps(rows):
      ...     _, totals = dl.scan(lambda _, x: (None, step(x)), None, rows)
      ...     return totals
      >>> totals = strategy.run(three_steps, args=(jnp.array([1.0, 2.0, 3.0]),))
      >>> totals.values[0].tolist(), float(total)
      ([2.0, 6.0, 12.0], 12.0)
    """
    outer = frames.current()
    if outer is None:
        raise ContextError(
            "dl.scan takes steps of a replica function, and was called outside of one. Call it in "
            "the function that run calls, or use jax.lax.scan."
        )
    if not callable(f):
        raise StructureError(
            f"dl.scan needs a function of the carry and one row, got {shown(f)}. Pass the function "
            "itself."
        )
    _require_arrays("init", init)
    steps = _length(xs, length)
    if frames.is_eager():
        return _in_python(f, init, xs, steps) if steps else _none(f, init, xs, outer)
    written, _ = _traced_once(f, init, xs, outer)

    def body(carry: tuple[Any, list[jax.Array]], row: Any) -> tuple[Any, Any]:
        inner = frames.LoopFrame(outer, dict(zip(written, carry[1], strict=True)))
        with frames.use(inner):
            state, result = _pair(f(carry[0], row))
        return (state, [inner.written[variable] for variable in written]), result

    start = [outer.get(variable) for variable in written]
    try:
        (state, values), results = jax.lax.scan(body, (init, start), xs, steps)
    except TypeError as error:
        if isinstance(error, DistlabError):
            raise
        raise _carry_error(shown_text(error)) from error
    for variable, value in zip(written, values, strict=True):
        outer.set(variable, value)
    return state, results


def _traced_once(
    f: Body, init: Any, xs: Any, outer: frames.Frame
) -> tuple[list[StoredVariable], Any]:
    """Returns the variables that `f` assigns, and the shapes of its result, by tracing it."""
    probe: list[frames.LoopFrame] = []
    context = scopes.current_replica()
    collectives = getattr(context, "collectives", None)
    before = len(collectives.gathered) if isinstance(collectives, TracedCollectives) else 0

    def call(state: Any, row: Any) -> Any:
        probe.append(frames.LoopFrame(outer, {}))
        with frames.use(probe[-1]):
            return _pair(f(state, row))[1]

    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], jnp.result_type(x)), xs)
    result = jax.eval_shape(call, init, rows)
    if isinstance(collectives, TracedCollectives):
        del collectives.gathered[before:]  # they happen in the scan
    return list(probe[-1].written), result


def _none(f: Body, init: Any, xs: Any, outer: frames.Frame) -> tuple[Any, Any]:
    """Returns what no step leaves: the carry as it is, and no rows of results."""
    _, result = _traced_once(f, init, xs, outer)
    return init, jax.tree.map(lambda row: jnp.zeros((0, *row.shape), row.dtype), result)


def _in_python(f: Body, init: Any, xs: Any, steps: int) -> tuple[Any, Any]:
    state, results = init, []
    for step in range(steps):
        state, result = _pair(f(state, jax.tree.map(operator.itemgetter(step), xs)))
        if _shapes(state) != _shapes(init):
            raise _carry_error(f"it has {_shapes(init)}, and step {step} returned {_shapes(state)}")
        results.append(result)
    return state, jax.tree.map(lambda *rows: jnp.stack(rows), *results)


def _carry_error(why: str) -> StructureError:
    return StructureError(
        "dl.scan needs a function whose carry has the structure, the shapes and the dtypes of "
        f"init at each step: {' '.join(why.split()):.300}. Pass an init of the shape that the "
        "function returns."
    )


def _shapes(carry: Any) -> Any:
    return jax.tree.map(np.shape, carry)


def _pair(returned: Any) -> tuple[Any, Any]:
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise StructureError(
            f"dl.scan needs a function that returns (carry, result), got {shown(returned)}. Return "
            "None for what there is not: (None, loss)."
        )
    return returned


def _require_arrays(name: str, nest: Any) -> list[Any]:
    """Returns the leaves of a nest of arrays and variables."""
    leaves = jax.tree.leaves(nest, is_leaf=lambda value: isinstance(value, DistributedValues))
    for leaf in leaves:
        if isinstance(leaf, DistributedValues) or not (is_variable(leaf) or is_array_like(leaf)):
            raise ValueShapeError(
                f"{name} of dl.scan must be an array or a nest of arrays, got {shown(leaf)}. Pass "
                "values of each replica as arguments of run, and others in the function's closure."
            )
        as_array(leaf, "dl.scan")
    return leaves


def _length(xs: Any, length: Any) -> int:
    leaves = _require_arrays("xs", xs)
    for leaf in leaves:
        if not np.shape(leaf):
            raise ValueShapeError(
                f"dl.scan goes over the rows of arrays, got {shown(leaf)} in xs. Pass values that "
                "all steps share through the function's closure."
            )
    lengths = {np.shape(leaf)[0] for leaf in leaves} | ({length} if length is not None else set())
    if len(lengths) != 1:
        raise ValueShapeError(
            "dl.scan needs one number of steps, got "
            f"{shown(sorted(lengths)) if lengths else 'none'}. Give all arrays in xs as many rows, "
            "or pass length=."
        )
    return int(lengths.pop())

"""Functions that leave the program that made them: `jax.export`, as SavedModel's counterpart.

A file holds a compiled form of the function for several platforms and batch sizes, and the arrays
that it uses. It needs none of the function's code, nor distlab's: the program in it is one of
`jax.export`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.collectives.lone import LoneCollectives
from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.data import TensorSpec
from distlab.devices import in_flight, jax_internals
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    ContextError,
    DataLossError,
    DistlabError,
    MissingExtraError,
    NotFoundError,
    ValueShapeError,
)
from distlab.text.paths import at_home, path_refusal
from distlab.text.shown import shown, shown_clause
from distlab.values.checks import (
    require_plain,
)
from distlab.values.distributed import DistributedValues, Mirrored
from distlab.values.needs_python import NEEDS_PYTHON, needs_python
from distlab.variables import frames, kept_traces
from distlab.variables.protocol import StoredVariable

PLATFORMS: Final = ("cpu", "cuda", "tpu")
_VERSION: Final = 1
_ABOUT, _PROGRAM, _ARRAY = "about.json", "program.jax", "arrays/{}"


@final
class Exported:
    """A function with the arrays that it uses, independent of the code that made it.

    Call it as the function: outside of strategies, in a replica function of `run`, within
    `jax.jit`. Derivatives are not exported.

    Args:
      program: The function of the arrays and its arguments, by `jax.export`.
      arrays: The arrays.

    Attributes:
      program: The function of the arrays and its arguments: a `jax.export.Exported`.
      arrays: The arrays that it uses, such as weights.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> weight = dl.Variable(3.0)
      >>> exported = dl.export(lambda x: weight.value() * x, dl.data.TensorSpec([None], "float32"))
      >>> exported
      Exported(float32[b] on cpu, cuda, tpu)
      >>> exported(jnp.array([1.0, 2.0])).tolist()
      [3.0, 6.0]
    """

    def __init__(self, program: Any, arrays: Sequence[jax.Array]) -> None:
        self.program = program
        self.arrays = tuple(arrays)

    def __call__(self, *args: Any) -> Any:
        """Calls the function.

        A batch without examples, such as that of a replica which has none, gives results without
        examples.

        Raises:
          ValueShapeError: The arguments have another structure, shape or dtype than the spec; or
            a result does not depend on the number of examples, and there are none.
        """
        in_flight.require_not_forked()
        positional, _ = jax.tree_util.treedef_children(self.program.in_tree)
        takes = len(jax.tree_util.treedef_children(positional)) - 1  # the first are the arrays
        if len(args) != takes:
            raise ValueShapeError(
                f"{self!r} takes {takes} {'argument' if takes == 1 else 'arguments'}, got "
                f"{len(args)}. Pass one for each spec that it was exported with."
            )
        try:
            if self._no_examples(args):
                return self._empty(args)
            return self.program.call(self.arrays, *args)
        except (TypeError, ValueError) as error:
            raise ValueShapeError(
                f"{self!r} was called with arguments that do not fit: {shown_clause(error)}. "
                "Pass arrays of the shapes and dtypes of the spec that it was exported with."
            ) from error

    def _no_examples(self, args: Any) -> bool:
        """Returns whether a dimension of any size is zero: JAX's programs know sizes from one."""
        leaves = jax.tree.leaves(args)
        return len(leaves) == len(self._arguments) and any(
            size == 0 and not isinstance(of_spec, int)
            for leaf, aval in zip(leaves, self._arguments, strict=True)
            for size, of_spec in zip(np.shape(leaf), aval.shape, strict=False)
        )

    def _empty(self, args: Any) -> Any:
        """Returns the results for arguments without examples, by those for one and for two."""

        def of_size(size: int) -> Any:
            forms = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(
                    tuple(n or size for n in np.shape(leaf)), jnp.result_type(leaf)
                ),
                args,
            )
            return jax.eval_shape(self.program.call, self.arrays, *forms)

        def empty(one: Any, two: Any) -> jax.Array:
            shape = tuple(2 * a - b for a, b in zip(one.shape, two.shape, strict=True))
            if 0 not in shape:
                raise ValueShapeError(
                    f"{self!r} was called without examples, and its result {one.dtype}"
                    f"{list(one.shape)} has elements all the same, such as a mean over them. Call "
                    "it with one example or more, or return a result for each example."
                )
            return jnp.zeros(shape, one.dtype)

        return jax.tree.map(empty, of_size(1), of_size(2))

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the function to a file, for `dl.load_exported`; the file is whole or not there.

        Args:
          path: The file.

        Returns:
          The file's path.

        Raises:
          ArgumentTypeError: `path` is no path.
          CheckpointError: The disk is full, or the path is a folder.

        Example:
          >>> import jax.numpy as jnp
          >>> import distlab as dl
          >>> double = dl.export(lambda x: 2 * x, jnp.zeros(3))
          >>> path = double.save("double.dlx")
          >>> dl.load_exported(path)(jnp.ones(3)).tolist()
          [2.0, 2.0, 2.0]
        """
        target = _file(path).absolute()
        beside = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.new")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(beside)
            beside.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):  # as where a folder of the path is a file
                beside.unlink()
            raise CheckpointError(
                f"{target} could not be written: {shown_clause(error, 300)}. Free space on the "
                "disk, or choose another file."
            ) from error
        return str(target)

    def _write(self, path: Path) -> None:
        kept = [_with_key(array) for array in self.arrays]
        about = {
            "version": _VERSION,
            "arrays": [[str(a.dtype), list(a.shape), key] for a, key in kept],
        }
        program = bytes(self.program.serialize())  # before there is a file
        path.unlink(missing_ok=True)  # of an earlier process, or a link
        with zipfile.ZipFile(path, "x") as file:
            file.writestr(_ABOUT, json.dumps(about))
            file.writestr(_PROGRAM, program)
            for number, (array, _) in enumerate(kept):
                file.writestr(_ARRAY.format(number), array.tobytes())

    def __repr__(self) -> str:
        """Shows the shapes of the arguments and the platforms."""
        shapes = [f"{aval.dtype}[{','.join(map(str, aval.shape))}]" for aval in self._arguments]
        return f"Exported({', '.join(shapes)} on {', '.join(self.program.platforms)})"

    @property
    def _arguments(self) -> Sequence[Any]:
        avals: Sequence[Any] = self.program.in_avals
        return avals[len(self.arrays) :]


def export(fn: Callable[..., Any], spec: Any, *, platforms: Sequence[str] = PLATFORMS) -> Exported:
    """Returns a function as a program for several platforms, with the arrays that it uses.

    It is the counterpart of `tf.saved_model.save`. The function may read variables and close over
    arrays, such as a model's weights: their present values go along, of an ON_READ variable the
    common value. It must not assign any.

    Args:
      fn: A function of arrays or nests of them.
      spec: The spec of its argument, or a tuple with that of each: a nest of arrays, of
        `dl.data.TensorSpec`, in which None is a dimension of any size, or of
        `jax.ShapeDtypeStruct`. The first dimensions that are None are one size: the batch's.
      platforms: Where the program can run.

    Raises:
      ArgumentTypeError: `fn` is no function, or a spec is something else.
      ContextError: The function assigns a variable, or communicates with other replicas.
      StructureError: `fn` is a generator or async function.
      NeedsPythonError: It needs a Python number, as for `if`, where only shapes are known.
      MissingExtraError: `flatbuffers` is not installed; the extra `checkpoint` installs it.

    Example:
      >>> import numpy as np
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weights = dl.Variable([[1.0], [2.0]])
      >>> serve = dl.export(lambda x: x @ weights.value(), dl.data.TensorSpec([None, 2], "float32"))
      >>> serve(np.ones((3, 2), "float32")).tolist()
      [[3.0], [3.0], [3.0]]
      >>> batches = dl.data.Dataset.from_tensors(np.ones((3, 2), "float32"))
      >>> for x in strategy.experimental_distribute_dataset(batches):
      ...     print([y.tolist() for y in strategy.run(serve, args=(x,)).values])
      [[[3.0], [3.0]], [[3.0]]]
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"export needs a function first, got {shown(fn)}. Write dl.export(lambda x: ..., spec)."
        )
    require_plain(fn, "export")
    in_flight.require_not_forked()
    export_library = jax_export()
    specs = spec if isinstance(spec, tuple) else (spec,)
    abstract = _abstract(export_library, specs)
    with frames.use(_ReadingFrame()), _without_replicas():
        traced, out_shape = _traced(fn, abstract)
    structure = jax.tree.structure(out_shape)

    def program(arrays: Sequence[Any], *args: Any) -> Any:
        flat = jax.tree.leaves(args)
        return jax.tree.unflatten(structure, jax.core.eval_jaxpr(traced.jaxpr, arrays, *flat))

    arrays = [_own(array) for array in traced.consts]
    forms = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    exporting = export_library.export(jax.jit(program), platforms=tuple(platforms))
    return Exported(exporting(tuple(forms), *abstract), arrays)


def _traced(fn: Callable[..., Any], abstract: tuple[Any, ...]) -> Any:
    """Returns the function's jaxpr, and the shapes of its result."""

    def arrays_of(*args: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf.array if isinstance(leaf, Mirrored) else leaf),
            fn(*args),
            is_leaf=lambda leaf: isinstance(leaf, DistributedValues),
        )

    try:
        return jax.make_jaxpr(arrays_of, return_shape=True)(*abstract)
    except NEEDS_PYTHON as error:
        raise needs_python(fn, "export", error) from error


def load_exported(path: str | os.PathLike[str]) -> Exported:
    """Returns a function that `Exported.save` wrote, without the code that made it.

    The file is a program: load only those of people whom you trust.

    Args:
      path: The file.

    Raises:
      ArgumentTypeError: `path` is no path.
      NotFoundError: There is no such file.
      DataLossError: It is damaged, or something else; or its program calls code of the process
        that `jax.export` does not keep stable.
      MissingExtraError: `flatbuffers` is not installed; the extra `checkpoint` installs it.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> path = dl.export(lambda x: x + 1, dl.data.TensorSpec([None], "int32")).save("next.dlx")
      >>> dl.load_exported(path)(jnp.arange(3)).tolist()
      [1, 2, 3]
    """
    export_library = jax_export()
    file = _file(path)
    if not file.exists():
        raise NotFoundError(
            f"There is no exported function {file}. Pass the path that Exported.save returned."
        )
    with _damage_as_error(file), zipfile.ZipFile(file) as held:
        if sum(part.file_size for part in held.infolist()) > file.stat().st_size:
            raise DataLossError(
                f"{file} would unpack to more bytes than it has, which no file of Exported.save "
                "does. Load the file that it wrote."
            )
        about = json.loads(held.read(_ABOUT))
        if about["version"] > _VERSION:
            raise DataLossError(f"{file} was written by a newer version of distlab. Update it.")
        arrays = [
            _read(held.read(_ARRAY.format(number)), *form)
            for number, form in enumerate(about["arrays"])
        ]
        program = export_library.deserialize(bytearray(held.read(_PROGRAM)))
        _require_stable_calls(export_library, program, file)
        return Exported(program, arrays)


def _require_stable_calls(export_library: Any, program: Any, file: Path) -> None:
    """Exports a program again, by which JAX checks the targets of its custom calls."""
    forms = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]
    args, kwargs = jax.tree.unflatten(program.in_tree, forms)
    again = export_library.export(jax.jit(program.call), platforms=program.platforms)
    try:
        with jax.enable_x64(True):  # the program's own dtypes
            again(*args, **kwargs)
        refused = "holds derivatives" if program.has_vjp() else ""  # another program, unchecked
    except ValueError as error:
        found = re.search(r"custom_call @([^(]+)", str(error))
        if found is None:
            raise
        refused = f"calls {found[1]} in the process"
    if refused:
        raise DataLossError(
            f"{file} {refused}, which no file of Exported.save does, and which could run any code. "
            "Export the function again where its code is."
        )


@final
class _ReadingFrame(frames.Frame):
    """The variables of a function that is exported: their values become arrays of the program."""

    def get(self, variable: StoredVariable) -> jax.Array:
        self.note_kept()
        with frames.use(None), jax_internals.outside_of_traces():
            value: Any = variable
            read: jax.Array = value.value()
            return read

    def _refuse(self, variable: StoredVariable, *_: Any, **__: Any) -> NoReturn:
        raise ContextError(
            f"{variable.name} is assigned by the function that is exported, which would change "
            "nothing where it is loaded. Export a function that only reads variables: a model's "
            "inference, without the update of its statistics."
        )

    set = update = set_copy = _refuse

    def get_copy(self, variable: StoredVariable, number: int | None) -> jax.Array:
        del number
        return self.get(variable)

    def _replica_id(self) -> int:
        return 0

    def note_kept(self) -> None:
        kept_traces.note_held()


@final
class _NoReplicas(LoneCollectives):
    """The collectives of a function that is exported: wherever it runs, it has no replicas."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ContextError(
            "A collective or the number of a replica was used by the function that is exported, "
            "whose program has no replicas. Export what a single replica computes, and combine the "
            "results with strategy.reduce or in the function that calls it."
        )

    replica_id = all_reduce = all_gather = merge = _refuse


def _without_replicas() -> AbstractContextManager[None]:
    replica = scopes.current_replica()
    if replica is None:
        return nullcontext()
    return scopes.replica(ReplicaContext(replica.strategy, _NoReplicas()))


def _abstract(export_library: Any, specs: Any) -> Any:
    """Returns specs as abstract arrays in which dimensions of any size have names."""
    scope, others = export_library.SymbolicScope(), itertools.count()

    def dimension(axis: int, size: int | None) -> Any:
        if size is not None:
            return size
        name = f"d{next(others)}" if axis else "b"
        return export_library.symbolic_shape(name, scope=scope)[0]

    def abstract(spec: Any) -> jax.ShapeDtypeStruct:
        kinds = TensorSpec | jax.ShapeDtypeStruct | jax.Array | np.ndarray | np.generic
        if not isinstance(spec, kinds) or not _is_numeric(spec.dtype):
            raise ArgumentTypeError(
                "A spec must be a dl.data.TensorSpec of numbers, a jax.ShapeDtypeStruct or an "
                f"array, got {shown(spec)}. Write dl.data.TensorSpec([None, 28, 28], 'float32')."
            )
        shape: Sequence[Any] = spec.shape
        if isinstance(spec, TensorSpec):
            shape = tuple(itertools.starmap(dimension, enumerate(shape)))
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(spec.dtype))

    one = TensorSpec | DistributedValues
    return jax.tree.map(abstract, specs, is_leaf=lambda v: isinstance(v, one))


def _is_numeric(dtype: Any) -> bool:
    """Returns whether programs compute with a dtype."""
    return bool(jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_))


def _file(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ArgumentTypeError(
            f"An exported function's file must be a string or a path, got {shown(path)}. Write for "
            "example 'model.dlx'."
        )
    if refusal := path_refusal(path, "An exported function"):
        raise ArgumentValueError(refusal)
    return Path(at_home(os.fsdecode(path)))


def _own(array: Any) -> jax.Array:
    """Returns an array that the program closes over on one device, bound to none."""
    value: Any = jnp.asarray(array)
    if len(value.sharding.device_set) > 1:
        value = jnp.asarray(np.asarray(value))
    owned: jax.Array = jax_internals.uncommitted(value)
    return owned


def _with_key(array: jax.Array) -> tuple[np.ndarray, str]:
    """Returns the numbers of an array, and the name of the generator whose keys they are."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(array)), jax_internals.key_impl(array.dtype)
    return np.asarray(array), ""


def _read(data: bytes, dtype: str, shape: list[int], key: str) -> jax.Array:
    array = jnp.asarray(np.frombuffer(data, np.dtype(dtype)).reshape(shape))
    keys: jax.Array = jax.random.wrap_key_data(array, impl=key) if key else array
    return keys


@contextmanager
def _damage_as_error(path: Path) -> Iterator[None]:
    try:
        yield
    except DistlabError:
        raise
    except Exception as error:  # zipfile, JSON and flatbuffers raise errors of many types
        raise DataLossError(
            f"{path} is no exported function, or it is damaged: {shown_clause(error, 200)}. Export "
            "and save it again."
        ) from error


def jax_export() -> Any:
    """Returns JAX's module `export`."""
    try:
        import flatbuffers  # noqa: F401 - jax.export needs it to write and read programs
        from jax import export as export_library
    except ImportError as error:
        raise MissingExtraError(
            "Exporting needs flatbuffers, which is not installed. Run: pip install "
            "'distlab[checkpoint]'"
        ) from error
    return export_library

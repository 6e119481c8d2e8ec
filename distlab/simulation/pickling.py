"""The user's function on its way to another process, with the lines of its source."""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax

from distlab import user_code
from distlab.errors import ArgumentTypeError, MissingExtraError
from distlab.text.shown import shown

_NOT_PICKLED = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)
_JITTED = type(jax.jit(len))


def pickled(make: Callable[..., Any]) -> bytes:
    """Returns a function as bytes.

    Raises:
      ArgumentTypeError: It refers to what does not travel.
      MissingExtraError: It stands in a script or notebook, and cloudpickle is not installed.
    """
    try:
        return _by_value(make) if find_spec("cloudpickle") else pickle.dumps(make)
    except _NOT_PICKLED as error:
        if not find_spec("cloudpickle"):
            raise MissingExtraError(
                "make stands in a script or notebook, so it travels by cloudpickle, which is not "
                "installed. Run: pip install 'distlab[cluster]', or move make into a module."
            ) from error
        raise ArgumentTypeError(
            "make travels to another process, so all that it refers to must be picklable, and "
            f"something is not: {shown(str(error), 400)}. Make meshes, devices and shardings "
            "inside of make, of the mesh that it receives."
        ) from error


def _by_value(make: Callable[..., Any]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, _JITTED):  # JAX leaves out its attributes, which have its options
                reduced: Any = obj.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
                return *reduced[:2], (reduced[2], vars(obj)), None, None, _set_state
            if not isinstance(obj, types.CodeType):
                return super().reducer_override(obj)
            # Cloudpickle leaves out the file, which errors and collectives need for their line.
            file = obj.co_filename
            _, args = self.dispatch_table[types.CodeType](obj)
            return _code, (args, file, user_code.cell_of(file))

    written = io.BytesIO()
    Pickler(written).dump(make)
    return written.getvalue()


def _set_state(jitted: Any, state: tuple[Any, dict[str, Any]]) -> None:
    own, attributes = state
    jitted.__setstate__(own)
    vars(jitted).update(attributes)


def _code(args: Any, file: str, cell: str | None) -> types.CodeType:
    if cell is not None:
        user_code.cells[file] = cell
    return types.CodeType(*args).replace(co_filename=file)

"""HTML for notebooks: the devices of strategies, values and variables, and specs of datasets.

Numbers are shown only when they are computed and cheap to read: a cell's output
neither waits for a device nor copies large arrays.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np

from distlab.devices import jax_internals, selection
from distlab.devices.pieces import held, pieces
from distlab.text.bytes import bytes_text
from distlab.text.html import card
from distlab.text.units import counted
from distlab.values.padding import place_of

_NUMBERS_SHOWN: Final = 4
_MOST_BYTES: Final = 1 << 20
"""Numbers of larger pieces are not shown: reading a few copies the whole piece."""

_LAYOUTS: Final = {
    "replicated": "the same on each device",
    "per_replica": "each replica has its own",
    "single": "on one device",
    "divided": "divided over devices",
}


def strategy_html(strategy: Any) -> str:
    """Returns a table of the device that runs each replica."""
    devices = [selection.describe(device) for device in strategy.mesh.devices]
    simulated = "simulated " if any(device.simulated for device in devices) else ""
    rows = [[str(n), device.name, device.kind] for n, device in enumerate(devices)]
    return card(
        type(strategy).__name__,
        f"{counted(len(devices), 'replica')} on {simulated}devices",
        ("replica", "device", "hardware"),
        rows,
    )


def per_replica_html(value: Any) -> str:
    """Returns a table of each replica's component: its device, shape and first numbers."""
    stacked = value.stacked
    if not isinstance(stacked, np.ndarray) and not _is_concrete(stacked):
        return card("PerReplica", "being traced", (), ())
    count = stacked.shape[0] if stacked.shape else 0
    shapes = value.shapes or (stacked.shape[1:],) * count
    found = _pieces(stacked)
    rows = []
    for replica, shape in enumerate(shapes):
        row = found.get(replica)
        nbytes = int(np.prod(shape, dtype=np.int64)) * stacked.dtype.itemsize
        rows.append(
            [
                str(replica),
                _device_name(row),
                str(list(shape)),
                bytes_text(nbytes),
                _numbers_text(row, shape, in_row=True),
            ]
        )
    different = "" if value.shapes is None else " of different shapes"
    facts = f"{counted(count, f'{stacked.dtype} component')}{different}"
    return card("PerReplica", facts, ("replica", "device", "shape", "size", "first numbers"), rows)


def mirrored_html(value: Any) -> str:
    """Returns a table of the copies of a mirrored value: their devices and first numbers."""
    array = value.array
    if not _is_concrete(array):
        return card("Mirrored", "being traced", (), ())
    return card(
        "Mirrored",
        f"{array.dtype}{list(array.shape)}, a copy on each device",
        ("replica", "device", "size", "first numbers"),
        _copy_rows(_pieces(array)),
    )


def variable_html(variable: Any) -> str:
    """Returns a table of the copies of a variable, or parts: their devices and first numbers."""
    storage = variable.storage
    divided = bool(storage.layout.spec)
    try:
        copies = dict(enumerate(held(storage.alive()))) if divided else storage.copies()
    except RuntimeError:
        return card(f"Variable {variable.name}", "deleted", (), ())
    return card(
        f"Variable {variable.name}",
        f"{variable.dtype}{list(variable.shape)}, {_LAYOUTS[storage.layout.name]}",
        ("part" if divided else "copy", "device", "size", "first numbers"),
        _copy_rows(copies),
    )


def dataset_html(dataset: Any) -> str:
    """Returns a table of the shape and dtype of each component on each replica."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dataset.element_spec)
    strategy = dataset.strategy
    replicas = strategy.num_replicas_in_sync
    try:
        steps = f", {len(dataset)} steps per epoch"
    except TypeError:  # unknown or infinite
        steps = ""
    return card(
        "DistributedDataset",
        f"divided over {counted(replicas, 'replica')} of {type(strategy).__name__}{steps}",
        ("component", "on each replica"),
        [[jax.tree_util.keystr(path) or "element", _spec_on_device(leaf)] for path, leaf in leaves],
    )


def _copy_rows(copies: dict[int, Any]) -> list[list[str]]:
    return [
        [str(n), _device_name(copy), bytes_text(copy.nbytes), _numbers_text(copy, copy.shape)]
        for n, copy in copies.items()
    ]


def _spec_text(spec: Any) -> str:
    """Returns the spec of the first replica's component as text, such as `float32[?, 8, 8]`."""
    local = getattr(spec, "value_specs", (spec,))[0]
    shape, dtype = getattr(local, "shape", None), getattr(local, "dtype", None)
    if shape is None or dtype is None:
        return repr(local)
    return f"{dtype}[{', '.join('?' if length is None else str(length) for length in shape)}]"


def _spec_on_device(spec: Any) -> str:
    """Returns a spec as text with the dtype that JAX gives it, which may have only 32 bits."""
    text = _spec_text(spec)
    dtype = getattr(getattr(spec, "value_specs", (spec,))[0], "dtype", None)
    if dtype is None or np.dtype(dtype).kind not in "iufc":
        return text
    placed = str(jax.dtypes.canonicalize_dtype(dtype))
    return text if placed == str(dtype) else f"{placed}{text[len(str(dtype)) :]}, from {dtype}"


def _is_concrete(array: Any) -> bool:
    return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)


def _pieces(array: Any) -> dict[int, Any]:
    """Returns an array's rows or copies by replica; none when it is deleted."""
    if isinstance(array, np.ndarray):
        return {n: array[n : n + 1] for n in range(len(array))}
    try:
        return dict(pieces(array))
    except RuntimeError:
        return {}


def _device_name(piece: Any) -> str:
    if piece is None:
        return "deleted"
    if isinstance(piece, np.ndarray):
        return "host"
    return ", ".join(selection.name(device) for device in piece.devices())


def _numbers_text(piece: Any, shape: tuple[int, ...], *, in_row: bool = False) -> str:
    """Returns the first numbers of a component, if they are computed and cheap to read."""
    if piece is None or 0 in shape:
        return "\u2013"
    try:
        if isinstance(piece, jax.Array):
            if not jax_internals.is_ready(piece):
                return "being computed"
            if piece.nbytes > _MOST_BYTES:
                return "\u2026"
        array: Any = np.asarray(piece)
    except (RuntimeError, TypeError):  # deleted in the meantime; random keys
        return "\u2026"
    if in_row:
        array = array[(0, *place_of(shape, array.ndim - 1))]
    numbers = array.reshape(-1)
    text = ", ".join(
        f"{number:.4g}" if numbers.dtype.kind in "fc" else str(number)[:20]
        for number in numbers[:_NUMBERS_SHOWN].tolist()
    )
    return text + (", \u2026" if numbers.size > _NUMBERS_SHOWN else "")

"""What notebooks show of strategies, values, variables and datasets: where pieces lie.

A number is shown only where it is there already and costs nothing to read: showing
a value neither waits for a device nor copies much.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np

from distlab.devices import jax_internals, selection
from distlab.devices.pieces import pieces
from distlab.text.bytes import bytes_text
from distlab.text.html import card

_NUMBERS_SHOWN: Final = 4
_MOST_BYTES: Final = 1 << 20
"""Larger pieces are not fetched from their device to show some numbers of them."""


def strategy_html(strategy: Any) -> str:
    """Shows which device each replica runs on."""
    devices = strategy.mesh.devices
    told = [selection.describe(device) for device in devices]
    simulated = "simulated " if any(one.simulated for one in told) else ""
    rows = [[str(n), one.name, one.kind] for n, one in enumerate(told)]
    return card(
        type(strategy).__name__,
        f"{len(told)} replica{'s' * (len(told) != 1)} on {simulated}devices",
        ("replica", "device", "hardware"),
        rows,
    )


def per_replica_html(value: Any) -> str:
    """Shows each replica's component: where it lies, its shape and its first numbers."""
    stacked = value.stacked
    if not isinstance(stacked, np.ndarray) and not _is_concrete(stacked):
        return card("PerReplica", "being traced", (), ())
    count = stacked.shape[0] if stacked.shape else 0
    shapes = value.shapes or (stacked.shape[1:],) * count
    found = _pieces(stacked)
    rows = []
    for replica, shape in enumerate(shapes):
        piece = None if found is None else found.get(replica)
        nbytes = int(np.prod(shape, dtype=np.int64)) * stacked.dtype.itemsize
        rows.append(
            [
                str(replica),
                _device_of(piece),
                str(list(shape)),
                bytes_text(nbytes),
                _first(piece, shape),
            ]
        )
    even = "" if value.shapes is None else ", of different shapes"
    facts = f"{count} components of {stacked.dtype}{even}"
    return card("PerReplica", facts, ("replica", "device", "shape", "bytes", "numbers"), rows)


def mirrored_html(value: Any) -> str:
    """Shows the copies of a mirrored value."""
    array = value.array
    if not _is_concrete(array):
        return card("Mirrored", "being traced", (), ())
    return card(
        "Mirrored",
        f"{array.dtype}{list(array.shape)}, a whole copy on each device",
        ("replica", "device", "bytes", "numbers"),
        [
            [
                str(n),
                _device_of(piece),
                bytes_text(array.nbytes),
                _first(piece, array.shape, row=False),
            ]
            for n, piece in (_pieces(array) or {}).items()
        ],
    )


def variable_html(variable: Any) -> str:
    """Shows where the copies of a variable lie."""
    layout = {
        "replicated": "the same on each device",
        "per_replica": "each replica has its own",
        "single": "on one device",
    }[variable.storage.layout.name]
    try:
        copies = variable.storage.copies()
    except RuntimeError:  # deleted
        return card(f"Variable {variable.name}", "its memory was given away", (), ())
    rows = [
        [str(n), _device_of(copy), bytes_text(copy.nbytes), _first(copy, copy.shape, row=False)]
        for n, copy in copies.items()
    ]
    return card(
        f"Variable {variable.name}",
        f"{variable.dtype}{list(variable.shape)}, {layout}",
        ("copy", "device", "bytes", "numbers"),
        rows,
    )


def dataset_html(dataset: Any) -> str:
    """Shows what each replica gets of each component."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dataset.element_spec)
    strategy = dataset.strategy
    replicas = strategy.num_replicas_in_sync
    try:
        steps = f", {len(dataset)} steps an epoch"
    except TypeError:  # unknown, or without an end
        steps = ""
    return card(
        "DistributedDataset",
        f"divided over {replicas} replica{'s' * (replicas != 1)} of {type(strategy).__name__}"
        f"{steps}",
        ("component", "each replica gets"),
        [[jax.tree_util.keystr(path) or "element", _arriving_text(leaf)] for path, leaf in leaves],
    )


def per_replica_spec_html(spec: Any) -> str:
    """Shows what each replica gets of one component."""
    locals_ = spec.value_specs
    same = len(set(locals_)) == 1
    rows = [[str(replica), _arriving_text(local)] for replica, local in enumerate(locals_)]
    return card(
        "PerReplicaSpec",
        f"{len(locals_)} replicas{', all alike' if same else ''}{_unknown(locals_)}",
        ("replica", "gets"),
        [[f"0 to {len(locals_) - 1}", rows[0][1]]] if same and len(rows) > 1 else rows,
    )


def tensor_spec_html(spec: Any) -> str:
    """Shows the dimensions of one component, and its bytes where they are all known."""
    known = spec.dtype != object and None not in spec.shape
    count = int(np.prod(spec.shape, dtype=np.int64)) if known else 0
    rows = [["dimensions", " \u00d7 ".join(map(_length, spec.shape)) or "none"]]
    if known:
        rows.append(["bytes", bytes_text(count * spec.dtype.itemsize)])
    return card("TensorSpec", _spec_text(spec) + _unknown((spec,)), (), rows)


def _unknown(specs: Any) -> str:
    """Says what `?` means, when some dimension is not known."""
    return "; ? differs between batches" if any(None in spec.shape for spec in specs) else ""


def _length(length: int | None) -> str:
    return "?" if length is None else f"{length:,}"


def _spec_text(spec: Any) -> str:
    """Returns what one replica gets, as `float32[?, 8, 8]`; `?` may differ between them."""
    local = getattr(spec, "value_specs", (spec,))[0]
    shape, dtype = getattr(local, "shape", None), getattr(local, "dtype", None)
    if shape is None or dtype is None:
        return repr(local)
    return f"{dtype}[{', '.join('?' if length is None else str(length) for length in shape)}]"


def _arriving_text(spec: Any) -> str:
    """Returns a spec's text with the dtype that a device gets: JAX may have 32 bits alone."""
    text = _spec_text(spec)
    dtype = getattr(getattr(spec, "value_specs", (spec,))[0], "dtype", None)
    if dtype is None or np.dtype(dtype).kind not in "iufc":
        return text
    arriving = str(jax.dtypes.canonicalize_dtype(dtype))
    return text if arriving == str(dtype) else f"{arriving}{text[len(str(dtype)) :]}, from {dtype}"


def _is_concrete(array: Any) -> bool:
    return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)


def _pieces(array: Any) -> dict[int, Any] | None:
    """Returns an array's rows or copies by replica, None when it was deleted."""
    if isinstance(array, np.ndarray):
        return {n: array[n : n + 1] for n in range(len(array))}
    try:
        return dict(pieces(array))
    except RuntimeError:
        return None


def _device_of(piece: Any) -> str:
    if piece is None:
        return "given away"
    if isinstance(piece, np.ndarray):
        return "host"
    return ", ".join(selection.name(device) for device in piece.devices())


def _first(piece: Any, shape: tuple[int, ...], *, row: bool = True) -> str:
    """Returns the first numbers of a component, if they can be had at once.

    Args:
      piece: the row that it lies in, or the component itself.
      shape: its shape.
      row: whether `piece` is the row.
    """
    if piece is None or 0 in shape:
        return "\u2013"
    try:
        if isinstance(piece, jax.Array):
            if not jax_internals.is_ready(piece):
                return "being computed"
            if piece.nbytes > _MOST_BYTES:
                return "\u2026"
        array: Any = np.asarray(piece)
    except (RuntimeError, TypeError):  # deleted meanwhile; random keys
        return "\u2026"
    if row:
        array = array[(0, *(slice(n) for n in shape))]
    numbers = array.reshape(-1)
    text = ", ".join(
        f"{number:.4g}" if numbers.dtype.kind in "fc" else str(number)[:20]
        for number in numbers[:_NUMBERS_SHOWN].tolist()
    )
    return text + (", \u2026" if numbers.size > _NUMBERS_SHOWN else "")

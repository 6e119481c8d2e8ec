"""Batches of any iterable, placed on a mesh."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab import events
from distlab.errors import ArgumentTypeError
from distlab.events import sink
from distlab.input.dataset import numbers
from distlab.input.preview import Previewer
from distlab.meshes import blocks
from distlab.observing.arguments import placed_batches
from distlab.observing.meshes import mesh_of, strategy_of
from distlab.text.shown import shown
from distlab.user_code import calling_line

_KINDS_ON_DEVICES: Final = "biufcV"


def shard_batches(loader: Iterable[Any], sharding: Any, spec: Any = None) -> Iterator[Any]:
    """Iterates over a loader's batches, each placed on a mesh by one `jax.device_put`.

    A recording shows each batch: the division over the mesh, the wait for the loader, the transfer,
    and previews of examples in the first 50. The loader may be any iterable whose batches are
    pytrees of arrays, such as a `torch.utils.data.DataLoader`, a Grain or `tf.data` iterator, or a
    generator. Texts and objects stay on the host. A batch that the mesh doesn't divide raises
    JAX's `ValueError`: have the loader leave out or pad a partial last batch.

    In a program of several processes, each passes its own part of every batch.

    Args:
      loader: The batches.
      sharding: A `jax.sharding.Sharding` for all arrays, or a pytree prefix of shardings; or a
        `jax.sharding.Mesh`.
      spec: With a mesh, a `PartitionSpec` or a pytree prefix of these. By default the first
        dimension is divided along the mesh's first axis.

    Returns:
      An iterator over the batches, as pytrees of `jax.Array`.

    Raises:
      ArgumentTypeError: `spec` was given without a mesh.

    Example:
      >>> import jax, numpy as np, distlab as dl
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.make_mesh((4, 2), ("data", "model"))
      >>> loader = ({"x": np.ones((8, 3), "float32"), "y": np.arange(8)} for _ in range(2))
      >>> for batch in dl.shard_batches(loader, mesh, P("data")):
      ...     print(batch["x"].shape, batch["x"].addressable_shards[0].data.shape)
      (8, 3) (2, 3)
      (8, 3) (2, 3)
    """
    if isinstance(sharding, Mesh):
        specs = PartitionSpec(sharding.axis_names[0]) if spec is None else spec
        sharding = jax.tree.map(lambda one: NamedSharding(sharding, one), specs, is_leaf=_is_spec)
    elif spec is not None:
        raise ArgumentTypeError(
            f"spec belongs to a mesh, got it with {shown(sharding)}. Pass the mesh instead of "
            "the sharding, or leave spec out."
        )
    return _batches(iter(loader), sharding, calling_line())


def _is_spec(one: Any) -> bool:
    return isinstance(one, PartitionSpec)


def _batches(reader: Iterator[Any], shardings: Any, source: str) -> Iterator[Any]:
    number = next(numbers)
    previewer = Previewer(number)
    batch = 0
    while True:
        asked = time.monotonic_ns()
        try:
            elements = next(reader)
        except StopIteration:
            return
        wait_ns = time.monotonic_ns() - asked
        # Nothing here holds the batch while the caller works with it.
        yield _placed(elements, shardings, previewer, (number, batch, wait_ns, source))
        del elements
        batch += 1


def _placed(
    elements: Any, shardings: Any, previewer: Previewer, about: tuple[int, int, int, str]
) -> Any:
    """Places a batch, and emits how it was divided."""
    read = time.monotonic_ns()
    leaves, structure = jax.tree.flatten(elements)
    targets = jax.tree.leaves(jax.tree.broadcast(shardings, elements))
    arrays = [_array(leaf, target) for leaf, target in zip(leaves, targets, strict=True)]
    moved = [n for n, array in enumerate(arrays) if array is not None]
    values = _put([arrays[n] for n in moved], [targets[n] for n in moved])
    transfer_ns = time.monotonic_ns() - read
    for n, value in zip(moved, values, strict=True):
        leaves[n] = value
    recorder = sink.recorder()
    if recorder.enabled:
        _report(recorder, values, about, transfer_ns)
        columns = [[array] for array in arrays if isinstance(array, np.ndarray) and array.ndim]
        columns = [one for one in columns if len(one[0]) == len(columns[0][0])]
        columns.sort(key=lambda one: -one[0].ndim)  # pictures before labels
        previewer.show(recorder, columns, None, 0, about[1])
    return jax.tree.unflatten(structure, leaves)


def _array(leaf: Any, target: Any) -> Any:
    """Returns a leaf as `device_put` accepts it, None for one that stays on the host."""
    if isinstance(leaf, jax.Array | bool | int | float | complex):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in _KINDS_ON_DEVICES:
        return None
    # CPU devices may share NumPy's memory, which a loader may fill again with its next batch.
    on_cpu = next(iter(target.device_set)).platform == "cpu"
    return array.copy() if on_cpu and array.flags.writeable else array


def _put(arrays: list[Any], targets: list[Any]) -> list[Any]:
    if all(target.is_fully_addressable for target in targets):
        placed: list[Any] = jax.device_put(arrays, targets)
        return placed
    return [
        jax.make_array_from_process_local_data(target, np.asarray(array))
        for array, target in zip(arrays, targets, strict=True)
    ]


def _report(
    recorder: sink.Recorder, values: list[Any], about: tuple[int, int, int, str], transfer_ns: int
) -> None:
    arrays = [value for value in values if value.ndim]
    if not arrays:
        return
    main = max(arrays, key=lambda value: value.nbytes)
    number, batch, wait_ns, source = about
    axes: dict[str, int] = {}
    spec: blocks.Spec = ((),) * main.ndim
    if isinstance(main.sharding, NamedSharding):
        axes = dict(main.sharding.mesh.shape)
        spec = blocks.full_spec(main.sharding.spec, main.ndim)
    examples = main.shape[0]
    placed_batches.set(main, examples)
    rows = examples // blocks.cuts(spec, axes)[0]
    recorder.emit(
        events.Sharding(
            time_ns=time.monotonic_ns(),
            strategy=strategy_of(mesh_of(value.sharding for value in values), recorder),
            dataset=number,
            batch=batch,
            epoch=0,
            sizes=[] if axes else [examples],
            nominal=rows,
            indices=None,
            bytes=sum(value.nbytes for value in values),
            wait_ns=wait_ns,
            transfer_ns=transfer_ns,
            policy="rebatch",
            source=source,
            mesh=axes,
            spec=[list(names) for names in spec],
            shape=list(main.shape),
        )
    )

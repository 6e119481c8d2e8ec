"""`dl.shard_batches`: placement of a loader's batches, and their events."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.events import Preview, Sharding, Strategy
from tests.listening import listening


@pytest.fixture
def mesh() -> Mesh:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def loader(batches: int = 2, size: int = 8) -> Iterator[dict[str, Any]]:
    for n in range(batches):
        x = np.full((size, 6, 6), n, np.float32)
        yield {"label": np.arange(size), "name": np.array(["a"] * size), "x": x}


def test_batches_are_placed_by_specs_of_a_mesh(mesh: Mesh) -> None:
    first, second = dl.shard_batches(loader(), mesh, {"label": P(), "name": P(), "x": P("data")})
    assert first["x"].sharding == NamedSharding(mesh, P("data"))
    assert first["label"].sharding == NamedSharding(mesh, P())
    assert first["name"].tolist() == ["a"] * 8  # texts stay on the host
    assert float(second["x"].sum()) == 8 * 36


def test_without_a_spec_the_first_axis_divides_the_batch(mesh: Mesh) -> None:
    batch = next(dl.shard_batches(loader(), mesh))
    assert batch["x"].sharding.spec == P("data")
    again = next(dl.shard_batches([batch["x"]], NamedSharding(mesh, P(None, "model"))))
    assert again.sharding.spec == P(None, "model")


def test_tensors_of_other_libraries_are_placed_by_their_numbers(mesh: Mesh) -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.ones((8, 3), np.float32)

    x, y = next(dl.shard_batches([(Tensor(), [Tensor()])], mesh))
    assert x.shape == y[0].shape == (8, 3)


def test_a_loader_may_fill_its_memory_again(mesh: Mesh) -> None:
    memory = np.zeros((8, 4096), np.float32)

    def refill() -> Iterator[np.ndarray]:
        for n in range(3):
            memory[:] = n
            yield memory

    batches = list(dl.shard_batches(refill(), mesh))
    assert [float(batch[0, 0]) for batch in batches] == [0, 1, 2]


def test_a_loader_may_repeat_batches_that_are_placed_already(mesh: Mesh) -> None:
    often, later = (jax.device_put(np.ones((8, n)), NamedSharding(mesh, P("data"))) for n in (1, 2))
    with listening() as found:
        for _ in dl.shard_batches([*[often] * 256, *[later] * 2], mesh):
            pass
    assert len(found.of(Sharding)) == 258


def test_a_batch_that_the_mesh_does_not_divide_is_an_error_of_jax(mesh: Mesh) -> None:
    with pytest.raises(ValueError, match="evenly divide"):
        list(dl.shard_batches(loader(size=6), mesh))


def test_a_spec_without_a_mesh_is_refused(mesh: Mesh) -> None:
    with pytest.raises(dl.errors.ArgumentTypeError, match="spec belongs to a mesh"):
        dl.shard_batches(loader(), NamedSharding(mesh, P()), P())


def test_events_have_the_mesh_spec_and_shape_and_no_devices(mesh: Mesh) -> None:
    with listening() as found:
        list(dl.shard_batches(loader(), mesh, P(("data", "model"))))
    batches, [strategy] = found.of(Sharding), found.of(Strategy)
    assert [event.batch for event in batches] == [0, 1]
    one = batches[0]
    assert (one.mesh, one.spec, one.shape) == (
        {"data": 4, "model": 2},
        [["data", "model"], [], []],
        [8, 6, 6],
    )
    assert (one.sizes, one.parts, one.strategy) == ([], [1] * 8, strategy.strategy)
    assert one.bytes == 8 * 36 * 4 + 8 * 4
    assert one.source.startswith("test_sharded.py:")
    previews = found.of(Preview)
    assert [(event.batch, event.form, event.shape) for event in previews] == [
        (0, "image", [6, 6]),
        (1, "image", [6, 6]),
    ]
    assert previews[0].labels == [str(n) for n in range(8)]


def test_the_iterator_holds_no_batch_while_the_caller_works(mesh: Mesh) -> None:
    batches = dl.shard_batches(loader(), mesh)
    size = next(batches)["x"].nbytes
    gc.collect()
    held = [a for a in jax.live_arrays() if a.nbytes == size and a.shape == (8, 6, 6)]
    assert held == []

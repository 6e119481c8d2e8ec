"""The places of a strategy's replicas and workers."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

import distlab as dl
from distlab.step.programs.place import Place
from distlab.strategies.workers import ThreadWorkers, current_worker


def test_the_default_strategy_has_a_place() -> None:
    place = dl.get_strategy().place
    assert place.number == -1
    assert place.mesh.devices == (jax.local_devices()[0],)
    assert dl.get_strategy().number == -1


@pytest.mark.parametrize(
    "make",
    [
        dl.MirroredStrategy,
        dl.MultiWorkerMirroredStrategy,
        dl.TPUStrategy,
        lambda: dl.OneDeviceStrategy("CPU:3"),
        dl.experimental.CentralStorageStrategy,
    ],
)
def test_a_strategy_describes_itself_by_its_place(make: Callable[[], dl.Strategy]) -> None:
    strategy = make()
    assert strategy.mesh is strategy.place.mesh
    assert strategy.number == strategy.place.number
    assert strategy.num_replicas_in_sync == strategy.mesh.replicas
    assert strategy.extended.worker_devices == strategy.mesh.names


def test_a_worker_is_a_thread_with_a_place_and_a_default_device() -> None:
    places = [Place.on([f"CPU:{n}"], f"worker {n}") for n in range(2)]
    workers = ThreadWorkers(places)
    assert (len(workers), current_worker(), workers.place) == (2, None, places[0])
    with workers.acting_as(1):
        assert (current_worker(), workers.place) == (1, places[1])
        assert jax.numpy.zeros(1).devices() == {jax.devices()[1]}
    assert (current_worker(), workers.place) == (None, places[0])

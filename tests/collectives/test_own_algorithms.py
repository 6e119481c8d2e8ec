"""A user's own algorithm sums the replicas' values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import distlab as dl
from distlab.events import Reduction
from distlab.recording import RingRecorder


class Plain(dl.CrossDeviceOps):
    """It adds up, and has no name."""

    def sum_rows(self, stacked: jax.Array, mesh: Any) -> Any:
        return stacked.sum(0)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> Any:
        return list(jax.lax.psum(values, "replica"))


def made(ops: dl.CrossDeviceOps) -> tuple[dl.Strategy, Any]:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: np.float32(1.5 + context.replica_id_in_sync_group)
    )
    return strategy, values


def test_an_algorithm_without_a_name_is_called_by_its_class(recorder: RingRecorder) -> None:
    strategy, values = made(Plain())
    assert float(strategy.reduce("SUM", values, axis=None)) == 4.0
    reductions = [e for e in recorder.ring.since(0).events if isinstance(e, Reduction)]
    assert [one.algorithm for one in reductions] == ["Plain"]

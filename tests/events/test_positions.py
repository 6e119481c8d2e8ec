"""Positions of examples in events: exact, and small in a run's file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import distlab as dl
from distlab.events import Sharding
from distlab.events.positions import packed, unpacked
from tests.synthetic import there

_STEPS = 400


def test_positions_have_as_many_bytes_as_the_largest_needs() -> None:
    for most, width in (
        *((0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)),
        *(((1 << 32) - 1, 4), (1 << 32, 8), ((1 << 63) - 1, 8)),
    ):
        positions = np.array([0, most], np.int64)
        fields = packed(positions)
        indices = there(fields["indices"])
        assert (len(indices), fields["index_bytes"]) == (2 * width, width), most
        assert unpacked(indices, width).tolist() == positions.tolist()
    assert unpacked(there(packed(np.zeros(0, np.int64))["indices"]), 1).tolist() == []
    assert packed(None)["indices"] is None


def test_a_step_of_32_examples_takes_at_most_380_bytes(tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy([f"cpu:{n}" for n in range(8)])
    data = dl.data.Dataset.from_tensor_slices(np.arange(32.0 * _STEPS)).shuffle(9_999, seed=1)
    seen = []
    with dl.record(tmp_path / "run"):
        for batch in strategy.experimental_distribute_dataset(data.batch(32)):
            strategy.run(jnp.sum, (batch,))
            parts = strategy.experimental_local_results(batch)
            seen.append(np.concatenate([np.asarray(part) for part in parts]).tolist())
    with dl.Run.open(tmp_path / "run") as run:
        batches = [event for event in run.events("sharding") if isinstance(event, Sharding)]
    assert [there(event.positions).tolist() for event in batches] == seen
    database = sqlite3.connect(tmp_path / "run" / "process-0.sqlite")
    asked = "SELECT sum(length(body)) FROM events WHERE kind IN ('sharding', 'step')"
    ((stored,),) = database.execute(asked)
    database.close()
    assert stored / _STEPS <= 380

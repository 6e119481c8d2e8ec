"""BackupAndRestore: loops that are interrupted, and processes that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, CheckpointError, ContextError
from tests.integrations.orbax import killed
from tests.integrations.orbax.saving import ON_READ, SUM, strategy_of


def test_a_killed_run_applies_every_example_once_an_epoch(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    outcome = killed.run(folder, kills=2, seed=2, in_background=True)
    assert outcome.kills >= 1
    assert outcome.starts[-1] > 0
    batches = -(-killed.EXAMPLES // killed.BATCH)
    assert outcome.result["steps"] == killed.EPOCHS * batches
    assert outcome.result["least"] == outcome.result["most"] == killed.EPOCHS
    whole = _uninterrupted()
    np.testing.assert_allclose(outcome.result["w"], whole, rtol=2e-5)
    assert list(folder.iterdir()) == []


def _uninterrupted() -> Any:
    """Trains as `killed.JOB` does, with NumPy's arithmetic."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(killed.EXAMPLES, killed.WEIGHTS)).astype("float32")
    y = x @ np.arange(killed.WEIGHTS, dtype="float32")
    dataset = dl.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=11)
    w = np.zeros(killed.WEIGHTS, "float32")
    for rows, wanted in dataset.batch(killed.BATCH).repeat(killed.EPOCHS):
        w -= 0.02 * 2 * rows.T @ (rows @ w - wanted) / killed.BATCH
    return w


@pytest.mark.parametrize("stop", [1, 5])
def test_an_interrupted_loop_goes_on_at_the_next_batch(stop: int, tmp_path: Path) -> None:
    def train(replicas: int, until: int | None) -> tuple[Any, dl.BackupAndRestore]:
        strategy = strategy_of(replicas)
        with strategy.scope():
            seen = dl.Variable(jnp.zeros(20, jnp.int32), synchronization=ON_READ, aggregation=SUM)
        dataset = dl.data.Dataset.range(20).shuffle(20, seed=2).batch(6).repeat(2)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        checkpoint = dl.train.Checkpoint(seen=seen, iterator=iterator)

        def step(i: Any) -> None:
            seen.assign_add(jnp.zeros(20, jnp.int32).at[i].add(1))

        with dl.BackupAndRestore(checkpoint, tmp_path / "b", save_freq=2) as backup:
            for number, batch in enumerate(iterator):
                if number == until:
                    raise KeyboardInterrupt
                strategy.run(step, args=(batch,))
                backup.step()
        return seen, backup

    with pytest.raises(KeyboardInterrupt):
        train(8, stop)
    seen, backup = train(3, None)
    assert seen.numpy().tolist() == [2] * 20
    assert (backup.restored is None) == (stop < 2)
    assert list((tmp_path / "b").iterdir()) == []


def test_backups_stay_when_asked_for(tmp_path: Path) -> None:
    x = dl.Variable(1.0)
    checkpoint = dl.train.Checkpoint(x=x)
    with dl.BackupAndRestore(checkpoint, tmp_path, delete_checkpoint=False) as backup:
        backup.step()
        backup.save()
    x.assign(0.0)
    with dl.BackupAndRestore(checkpoint, tmp_path) as backup:
        assert str(backup.restored).endswith("backup-2")
    assert float(x) == 1.0


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=1)
    backup = dl.BackupAndRestore(checkpoint, tmp_path)
    with pytest.raises(ContextError, match="outside of its with block"):
        backup.step()
    wrong: Any = "epoch"
    with pytest.raises(ArgumentValueError, match="save_freq must be a positive number of steps"):
        dl.BackupAndRestore(checkpoint, tmp_path, save_freq=wrong)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is a file"):
        dl.BackupAndRestore(checkpoint, tmp_path / "file")

"""Checkpoints of variables in parts: whole in the file, and in any parts when restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from tests.integrations.orbax.saving import strategy_of

W: Final = np.arange(24 * 16, dtype=np.float32).reshape(24, 16)


def divided(replicas: int) -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], shard_variables=64)


def on_model_axis() -> dl.Strategy:
    devices = [f"CPU:{n}" for n in range(8)]
    return dl.MirroredStrategy(devices, model_axis=2, layouts={"w|slot": (None, "model")})


STRATEGIES: Final[dict[str, tuple[Callable[[], dl.Strategy], tuple[int, ...]]]] = {
    "8 divided": (lambda: divided(8), (3, 16)),
    "3 divided": (lambda: divided(3), (8, 16)),
    "3 mirrored": (lambda: strategy_of(3), (24, 16)),
    "4 of 2 devices": (on_model_axis, (24, 8)),
    "none": (lambda: strategy_of(0), (24, 16)),
}


def variables_of(strategy: dl.Strategy) -> dict[str, dl.Variable]:
    with strategy.scope():
        return {
            "w": dl.Variable(np.zeros_like(W), name="w"),
            "slot": dl.Variable(jnp.zeros((24, 16), jnp.bfloat16), name="slot"),
            "keys": dl.Variable(jax.random.split(jax.random.key(0), 24), name="keys"),
            "count": dl.Variable(0, name="count"),
        }


def train(strategy: dl.Strategy, variables: dict[str, dl.Variable]) -> Any:
    """Takes a step, which reads and assigns; returns the numbers and the shape of a part."""

    def step() -> None:
        variables["w"].assign_sub(variables["slot"].value().astype(jnp.float32) / 2)

    w = variables["w"]
    strategy.run(step)
    data = jax.random.key_data(variables["keys"].value())
    numbers = [w.numpy(), variables["slot"].numpy(), np.asarray(data), int(variables["count"])]
    array = w.storage.array
    return numbers, array.sharding.shard_shape(array.shape)


def test_parts_are_saved_whole_and_restored_in_any(tmp_path: Path) -> None:
    for name, (make, part) in STRATEGIES.items():
        strategy = make()
        saved = variables_of(strategy)
        saved["w"].assign(W)
        saved["slot"].assign(jnp.asarray(W, jnp.bfloat16))
        saved["keys"].assign(jax.random.split(jax.random.key(7), 24))
        saved["count"].assign(3)
        path = dl.train.Checkpoint(v=saved).write(tmp_path / name)
        assert dict(dl.train.list_variables(path))["v/w"] == [24, 16]
        expected, shape = train(strategy, saved)
        assert shape == part
        for other, (restoring, own) in STRATEGIES.items():
            strategy = restoring()
            restored = variables_of(strategy)
            dl.train.Checkpoint(v=restored).read(path).assert_consumed()
            numbers, shape = train(strategy, restored)
            assert shape == own, (name, other)
            for number, wanted in zip(numbers, expected, strict=True):
                np.testing.assert_array_equal(number, wanted, err_msg=f"{name} to {other}")


def test_a_thread_writes_parts_while_steps_go_on(tmp_path: Path) -> None:
    strategy = divided(8)
    variables = variables_of(strategy)
    variables["w"].assign(W)
    manager = dl.train.CheckpointManager(
        dl.train.Checkpoint(v=variables), tmp_path, max_to_keep=1, enable_async=True
    )
    for _ in range(3):
        manager.save()
        strategy.run(lambda: variables["w"].assign_add(jnp.ones_like(W)))
    assert manager.restore_latest() == str(tmp_path / "ckpt-3")
    np.testing.assert_array_equal(variables["w"], W + 2)


def test_a_divided_loop_goes_on_mirrored_where_it_stopped(tmp_path: Path) -> None:
    def training(strategy: dl.Strategy, until: int) -> tuple[Any, bool]:
        variables = variables_of(strategy)
        data = dl.data.Dataset.range(48).batch(24).repeat(3)
        iterator = iter(strategy.experimental_distribute_dataset(data))
        checkpoint = dl.train.Checkpoint(v=variables, iterator=iterator)

        def step(x: Any) -> None:
            total = dl.get_replica_context().all_reduce("SUM", x.sum().astype(jnp.float32))
            variables["w"].assign_add(total * jnp.ones((24, 16)))

        with dl.BackupAndRestore(checkpoint, tmp_path / "backup") as backup:
            for number, x in enumerate(iterator):
                if number == until:
                    raise KeyboardInterrupt
                strategy.run(step, args=(x,))
                backup.step()
        return variables["w"].numpy(), backup.restored is not None

    try:
        training(divided(8), until=3)
    except KeyboardInterrupt:
        w, restored = training(strategy_of(3), until=-1)
    assert restored
    np.testing.assert_array_equal(w, np.full((24, 16), 3 * sum(range(48)), np.float32))

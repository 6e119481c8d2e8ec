"""Checkpoints of variables on servers that are processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.experimental.partitioners import FixedShardsPartitioner
from distlab.integrations.dask.cluster import ParameterServerCluster

TABLE = np.arange(21, dtype=np.float32).reshape(7, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ParameterServerCluster]:
    with dl.launch(workers=1, parameter_servers=3) as made:
        yield made


def strategy_of(cluster: ParameterServerCluster, servers: int) -> dl.ParameterServerStrategy:
    """Returns a strategy whose partitioner makes a part for each of so many servers."""
    resolver = dl.cluster_resolver.DaskClusterResolver(cluster.client, 1, servers)
    return dl.ParameterServerStrategy(resolver, FixedShardsPartitioner(servers))


def model() -> dict[str, Any]:
    """Returns the variables of a model; their first values are not those of the checkpoint."""
    return {
        "table": dl.Variable(jnp.zeros((7, 3))),
        "slots": [dl.Variable(jnp.zeros((7, 3)))],
        "step": dl.Variable(0),
        "half": dl.Variable(jnp.bfloat16(0)),
    }


def values(of: dict[str, Any]) -> dict[str, Any]:
    """Returns the values, with a table in one piece."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.float32).tolist(), of)


TRAINED = {"table": (TABLE + 1).tolist(), "slots": [(2 * TABLE).tolist()], "step": 2, "half": 0.5}


@pytest.fixture(scope="module")
def saved(cluster: ParameterServerCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of variables that workers changed, whose tables were on three servers."""
    strategy = strategy_of(cluster, 3)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        made = model()
    assert [part.parameter_server for part in made["table"].variables] == [0, 1, 2]
    made["table"].assign(TABLE)
    made["slots"][0].assign(2 * TABLE)
    made["half"].assign(0.5)

    def step() -> None:
        def replica() -> None:
            made["table"].assign_add(jnp.full((7, 3), 0.5))
            made["step"].assign_add(1)

        strategy.run(replica)

    for _ in range(2):
        coordinator.schedule(step)
    coordinator.join()
    return Path(dl.train.Checkpoint(**made).save(str(tmp_path_factory.mktemp("saved") / "ckpt")))


def test_a_checkpoint_is_restored_into_another_number_of_servers(
    cluster: ParameterServerCluster, saved: Path
) -> None:
    strategy = strategy_of(cluster, 2)
    with strategy.scope():
        made = model()
    dl.train.Checkpoint(**made).restore(str(saved)).assert_consumed()
    assert values(made) == TRAINED
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    seen = coordinator.schedule(lambda: int(made["step"]) + float(made["half"])).fetch()
    assert seen == 2.5  # workers read what was restored


def test_a_servers_checkpoint_restores_under_other_strategies(saved: Path) -> None:
    for strategy in (dl.MirroredStrategy(jax.devices()[:2]), dl.OneDeviceStrategy("cpu:0")):
        with strategy.scope():
            made = model()
        dl.train.Checkpoint(**made).restore(str(saved)).assert_consumed()
        assert values(made) == TRAINED


def test_a_checkpoint_of_replicas_is_restored_on_servers(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    with dl.MirroredStrategy(jax.devices()[:2]).scope():
        mirrored = model()
    mirrored["table"].assign(TABLE + 1)
    mirrored["slots"][0].assign(2 * TABLE)
    mirrored["step"].assign(2)
    mirrored["half"].assign(0.5)
    path = dl.train.Checkpoint(**mirrored).save(str(tmp_path / "ckpt"))
    with strategy_of(cluster, 2).scope():
        made = model()
    dl.train.Checkpoint(**made).restore(path).assert_consumed()
    assert values(made) == TRAINED


def test_the_manager_saves_and_restores_while_workers_train(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    strategy = strategy_of(cluster, 2)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        made = model()
    manager = dl.train.CheckpointManager(dl.train.Checkpoint(**made), str(tmp_path), max_to_keep=2)

    def step() -> None:
        made["step"].assign_add(1)

    for _ in range(3):
        for _ in range(4):
            coordinator.schedule(step)
        coordinator.join()
        manager.save()
    assert len(manager.checkpoints) == 2
    with strategy_of(cluster, 3).scope():
        again = model()
    checkpoint = dl.train.Checkpoint(**again)
    dl.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=2).restore_or_initialize()
    assert int(again["step"].numpy()) == 12

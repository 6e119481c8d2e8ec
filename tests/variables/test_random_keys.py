"""Variables that hold random keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import distlab as dl
from distlab.errors import CheckpointMismatchError


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _variable(strategy: dl.Strategy, key: Any, **kind: Any) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(key, name="key", **kind)


def _data(key: Any) -> list[int]:
    return np.asarray(jax.random.key_data(key)).tolist()


def test_a_checkpoint_restores_keys(strategy: dl.Strategy, tmp_path: Path) -> None:
    impl = "rbg"
    saved = _variable(strategy, jax.random.key(7, impl=impl))
    path = dl.train.Checkpoint(key=saved).save(tmp_path / "ckpt")
    other = _variable(strategy, jax.random.key(1, impl=impl))
    dl.train.Checkpoint(key=other).restore(path).assert_consumed()
    assert [_data(copy.value()) for copy in other.values] == [_data(saved.value())] * 2
    strategy.run(lambda: other.assign(jax.random.fold_in(other.value(), 1)))
    assert _data(other.value()) == _data(jax.random.fold_in(saved.value(), 1))


def test_a_checkpoint_of_other_keys_is_refused(strategy: dl.Strategy, tmp_path: Path) -> None:
    path = dl.train.Checkpoint(key=_variable(strategy, jax.random.key(7))).save(tmp_path / "ckpt")
    for other in (jax.random.key(7, impl="rbg"), np.zeros(2, np.uint32)):
        with pytest.raises(CheckpointMismatchError, match="threefry2x32 keys"):
            dl.train.Checkpoint(key=_variable(strategy, other)).restore(path)

"""Orbax used directly, on nests that hold distlab's values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import distlab as dl
from distlab.errors import CheckpointMismatchError
from tests.integrations.orbax.saving import MEAN, ON_READ, SUM, strategy_of


def state_of(replicas: int, fill: float) -> dict[str, Any]:
    strategy = strategy_of(replicas)
    with strategy.scope():
        variables = [
            dl.Variable(jnp.full(4, fill)),
            dl.Variable(int(fill * 10), synchronization=ON_READ, aggregation=SUM),
            dl.Variable(fill, synchronization=ON_READ, aggregation=MEAN),
        ]
    state = (jnp.arange(4.0) * fill, jax.random.key(int(fill)))
    return {
        "variables": variables,
        "state": strategy.replicate(state) if replicas else state,
        "mirrored": dl.Mirrored(jax.device_put(fill, strategy.mesh.whole)),
        "plain": jnp.full(2, fill),
        "number": int(fill),
    }


def numbers_of(strategy: dl.Strategy, state: dict[str, Any]) -> list[Any]:
    def numbers(leaf: Any) -> Any:
        if isinstance(leaf, dl.PerReplica | dl.Mirrored):
            copies = [numbers(copy) for copy in leaf.values]
            assert all(copy == copies[0] for copy in copies)
            return copies[0]
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf).tolist()

    return [numbers(leaf) for leaf in dl.nest.flatten(state)]


def test_what_8_replicas_saved_is_restored_on_any_number(tmp_path: Path) -> None:
    saved = state_of(8, 4.0)
    saved["variables"][1].assign(80)
    wanted = numbers_of(strategy_of(8), saved)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", saved)
        checkpointer.wait_until_finished()
        for replicas in (3, 0):
            target = state_of(replicas, 0.0)
            restored = checkpointer.restore(tmp_path / "a", target)
            assert restored["variables"] == target["variables"]  # the same objects
            assert numbers_of(strategy_of(replicas), restored) == wanted
            structure: Any = jax.tree.structure(target)
            assert jax.tree.structure(restored) == structure
        whole = checkpointer.restore(tmp_path / "a")
        assert whole["state"][0].tolist() == [0, 4, 8, 12]  # once, and not once a replica
        assert whole["variables"][1] == 80


def test_pytree_checkpointer_and_restore_args(tmp_path: Path) -> None:
    saved = state_of(4, 3.0)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", saved)
        target = state_of(2, 0.0)
        args = ocp.checkpoint_utils.construct_restore_args(target)
        restored = checkpointer.restore(tmp_path / "a", item=target, restore_args=args)
    assert numbers_of(strategy_of(2), restored) == numbers_of(strategy_of(4), saved)


def test_another_shape_changes_no_variable(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"a": dl.Variable(1.0), "b": dl.Variable([1.0, 2.0])})
        checkpointer.wait_until_finished()
        target = {"a": dl.Variable(0.0), "b": dl.Variable([0.0])}
        with pytest.raises(CheckpointMismatchError, match=r"\['b'\] is float32\[1\] here"):
            checkpointer.restore(tmp_path / "a", target)
    assert float(target["a"]) == 0.0


def test_a_manager_saves_state_and_position_together(tmp_path: Path) -> None:
    def iterator(replicas: int) -> Any:
        dataset = dl.data.Dataset.range(40).shuffle(9, seed=1).batch(8)
        return iter(strategy_of(replicas).experimental_distribute_dataset(dataset))

    def rest(iterator: Any) -> list[list[int]]:
        return [np.concatenate([np.asarray(p) for p in b.values]).tolist() for b in iterator]

    state, source = state_of(4, 2.0), iterator(4)
    next(source)
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        save = ocp.args.StandardSave(state)
        items = ocp.args.Composite(state=save, data=ocp.args.JsonSave(source.state()))
        manager.save(0, args=items)
        manager.wait_until_finished()
        following = rest(source)
        target, other = state_of(3, 0.0), iterator(3)
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(target), data=ocp.args.JsonRestore()
        )
        found = manager.restore(0, args=items)
    restored = found["state"]
    other.restore(found["data"])
    assert numbers_of(strategy_of(3), restored) == numbers_of(strategy_of(4), state)
    assert rest(other) == following


ORBAX_FIRST = """
import orbax.checkpoint as ocp
import distlab as dl
import sys
variable = dl.Variable([1.0, 2.0])
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(sys.argv[1], {"v": variable})
    checkpointer.wait_until_finished()
    variable.assign([0.0, 0.0])
    checkpointer.restore(sys.argv[1], {"v": variable})
print(variable.numpy().tolist())
"""


def test_orbax_may_be_imported_before_distlab(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORBAX_FIRST, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "[1.0, 2.0]"

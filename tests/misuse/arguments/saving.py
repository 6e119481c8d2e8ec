"""Arguments of checkpoints, backups and exported functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World


@row("Checkpoint.save.file_prefix", "text")
def _(w: World, v: Any) -> object:
    return dl.train.Checkpoint(weights=w.weights).save(v)


@row("Checkpoint.restore.save_path", "none", tells="text")
def _(w: World, v: Any) -> object:
    return dl.train.Checkpoint(weights=w.weights).restore(v)


@row("latest_checkpoint.checkpoint_dir", "text")
def _(w: World, v: Any) -> object:
    return dl.train.latest_checkpoint(v)


@row("list_variables.ckpt_dir_or_file", tells="text")
def _(w: World, v: Any) -> object:
    return dl.train.list_variables(v)


@row("load_variable.name")
def _(w: World, v: Any) -> object:
    dl.train.Checkpoint(weights=w.weights).save("saved/ckpt")
    return dl.train.load_variable("saved", v)


@row("CheckpointManager.checkpoint")
def _(w: World, v: Any) -> object:
    return dl.train.CheckpointManager(v, "saved")


@row("CheckpointManager.directory", "text")
def _(w: World, v: Any) -> object:
    return dl.train.CheckpointManager(dl.train.Checkpoint(weights=w.weights), v)


@row("CheckpointManager.max_to_keep", "none big huge")
def _(w: World, v: Any) -> object:
    checkpoint = dl.train.Checkpoint(weights=w.weights)
    return dl.train.CheckpointManager(checkpoint, "saved", max_to_keep=v)


@row("BackupAndRestore.checkpoint")
def _(w: World, v: Any) -> object:
    return dl.BackupAndRestore(v, "saved")


@row("BackupAndRestore.save_freq", "big huge")
def _(w: World, v: Any) -> object:
    return dl.BackupAndRestore(dl.train.Checkpoint(weights=w.weights), "saved", save_freq=v)


@row("export.fn", "type function")
def _(w: World, v: Any) -> object:
    return dl.export(v, ())


@row("export.spec", "empty_list scalar_array deleted leaked", users="empty_tuple")
def _(w: World, v: Any) -> object:
    return dl.export(lambda x: x, v)


@row("load_exported.path", tells="text")
def _(w: World, v: Any) -> object:
    return dl.load_exported(v)


@row("Exported.save.path", "text")
def _(w: World, v: Any) -> object:
    spec = jax.ShapeDtypeStruct((2,), jnp.float32)
    return dl.export(jnp.sum, spec).save(v)

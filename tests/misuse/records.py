"""Misuse of recording, runs and the live widget."""

from __future__ import annotations

import jax.numpy as jnp

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.RecordError, "A run folder holds one run", "/run already", "overwrite=True")
def a_folder_that_holds_a_run(w: World) -> None:
    for _ in range(2):
        with dl.record(w.folder / "run"):
            pass


@misuse(errors.ValueShapeError, "one real number", "shape (3,)", "Reduce it first")
def an_array_as_metric(w: World) -> None:
    with dl.record(w.folder / "run") as run:
        run.log(loss=jnp.ones(3))


@misuse(errors.ValueShapeError, "log accepts numbers", "'loss' is being traced", "Return it from")
def a_metric_logged_in_a_step(w: World) -> None:
    with dl.record(w.folder / "run") as run:
        w.strategy.run(lambda a: run.log(loss=a.sum()), args=(w.x,))


@misuse(errors.NotARunError, "that distlab.record wrote", "does not exist", "Name the folder")
def a_run_that_is_not_there(w: World) -> None:
    dl.Run.open(w.folder / "none")


@misuse(errors.NotARunError, "can't be read", "not a database", "is damaged")
def a_damaged_run(w: World) -> None:
    with dl.record(w.folder / "run"):
        pass
    (file,) = (w.folder / "run").glob("*.sqlite*")
    file.write_bytes(b"nothing of that kind" * 400)
    dl.Run.open(w.folder / "run")

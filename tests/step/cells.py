"""Cells of a notebook, which are run in any order and again."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import distlab as dl


def in_a_notebook(cells: dict[str, str], order: list[str], **imported: Any) -> dict[str, Any]:
    """Runs cells, which share their names, one after another; returns the names.

    Args:
      cells: The source of each cell. It may use `dl`, `jnp`, the strategy `s` of two replicas, and
        the list `traces`.
      order: The cells to run.
      **imported: More names that the cells may use.
    """
    names: dict[str, Any] = {"dl": dl, "jnp": jnp, "traces": [], **imported}
    names["s"] = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    for cell in order:
        exec(compile(cells[cell], f"<cell {cell}>", "exec"), names)
    return names

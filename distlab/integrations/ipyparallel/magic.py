"""The cell magic `%%workers`: runs a cell on the workers of the cluster launched last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from distlab.errors import OptionError


class RunsCells(Protocol):
    """A cluster whose workers run cells."""

    workers: int

    def execute(self, code: str, workers: Sequence[int] | None = None) -> None:
        """Runs a cell on workers."""


_clusters: list[RunsCells] = []


class WorkersError(OptionError, UsageError):
    """The options of `%%workers` are invalid; IPython shows this error as one line."""


def offer(cluster: RunsCells) -> None:
    """Lets `%%workers` run cells on a cluster, where there is IPython."""
    _clusters.append(cluster)
    shell: Any = get_ipython()
    if shell is not None:
        shell.register_magic_function(workers, "cell", "workers")


def withdraw(cluster: RunsCells) -> None:
    """Takes back `offer`, for a cluster that is stopped."""
    if cluster in _clusters:
        _clusters.remove(cluster)


def workers(line: str, cell: str) -> None:
    """Runs a cell on the workers of the cluster that was launched last.

        %%workers            on all
        %%workers 0          on one, to look at its variables
        %%workers 0 2        on some

    Strategies and steps need all workers: what only some run must not communicate.
    """
    if not _clusters:
        raise WorkersError(
            "%%workers runs a cell on the workers of a cluster, and there is none. Launch one: "
            "cluster = distlab.launch(workers=2)."
        )
    cluster = _clusters[-1]
    cluster.execute(cell, _chosen(line, cluster.workers))


def _chosen(line: str, count: int) -> list[int] | None:
    given = line.replace(",", " ").split()
    for word in given:
        if not (word.isascii() and word.isdigit() and int(word) < count):
            raise WorkersError(
                f"%%workers takes the numbers of workers, from 0 to {count - 1}, or nothing for "
                f"all of them, and got {word!r}."
            )
    return [int(word) for word in given] or None

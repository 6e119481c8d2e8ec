"""Per-worker variables of workers in other processes: each has its own, on its device."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import numpy as np

from distlab.coordinator.remote_datasets import RemoteVariable
from distlab.errors import ContextError
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.variables.per_worker import PerWorkerVariable
from distlab.variables.variable import Variable


def own_variable(
    strategy: ParameterServerStrategy, number: int, about: dict[str, Any], value: np.ndarray
) -> PerWorkerVariable:
    """Returns a per-worker variable as one of the workers has it."""
    kinds = {name: about[name] for name in ("name", "trainable", "aggregation", "synchronization")}
    with strategy.scope():
        own = strategy.make_own(functools.partial(Variable, value, dtype=about["dtype"], **kinds))

    def read_all() -> NoReturn:
        raise ContextError(
            f"A function that a worker runs called read_all of {about['name']}, and the other "
            "workers are other processes. Call it in the coordinator."
        )

    known_by = RemoteVariable(about, value, number)
    return PerWorkerVariable(lambda: own, read_all, strategy.num_workers, known_by)

"""The closures of `tests.bench.coordinator` with distlab, its tasks as processes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import distlab as dl
from tests.bench import closures


def main() -> None:
    """Starts a cluster, and measures."""
    with dl.launch(workers=closures.WORKERS, parameter_servers=closures.SERVERS) as cluster:
        strategy = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            scalar = dl.Variable(0.0)
            many = [
                dl.Variable(jnp.zeros(closures.FLOATS_OF_VARIABLE))
                for _ in range(closures.VARIABLES)
            ]

        def trivial() -> float:
            return 1.0

        def argument(x: Any) -> Any:
            return strategy.run(jnp.sum, args=(x,))

        def add() -> None:
            scalar.assign_add(1.0)

        def replica() -> Any:
            total = sum(jnp.sum(variable.value()) for variable in many)
            for variable in many:
                variable.assign_add(jnp.ones(closures.FLOATS_OF_VARIABLE))
            return total

        def variables() -> Any:
            return strategy.run(replica)

        mb = jnp.ones(closures.FLOATS_OF_MB)
        closures.serve(
            coordinator,
            {
                "trivial": (trivial, ()),
                "argument": (argument, (mb,)),
                "scalar": (add, ()),
                "variables": (variables, ()),
            },
        )


if __name__ == "__main__":
    main()

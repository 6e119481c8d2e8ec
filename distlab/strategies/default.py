"""The strategy that holds where no other does: one replica, nothing distributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, final

import jax

from distlab.collectives.lone import LoneCollectives
from distlab.context import scopes
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.data import Dataset, as_dataset
from distlab.devices.layouts import Layout, OnOneDevice
from distlab.devices.mesh import ReplicaMesh, replica_mesh
from distlab.errors import ContextError
from distlab.input.context import InputContext
from distlab.input.distribute import call_for_input
from distlab.input.options import InputOptions
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy
from distlab.values.checks import checked_call, require_plain
from distlab.values.distributed import DistributedValues
from distlab.variables.variable import Variable

_NUMBER: Final = -1
"""Events of this strategy name no place: it emits none that describes it."""


@final
class DefaultStrategy(Strategy):
    """What `get_strategy()` gives outside of any scope.

    Programs written for a strategy run under it unchanged: `run` calls the
    function as it is, on JAX's default device.
    """

    distributed: ClassVar[bool] = False
    _only: ClassVar[DefaultStrategy | None] = None

    def __init__(self) -> None:
        if DefaultStrategy._only is not None:
            raise ContextError(
                "There is one default strategy. Get it with distlab.get_strategy() outside of any "
                "scope, or make a OneDeviceStrategy."
            )
        DefaultStrategy._only = self
        super().__init__(Place(_NUMBER, _default_mesh))
        self._context = ReplicaContext(self, LoneCollectives())

    def variable_layout(self, *, per_replica: bool) -> Layout:
        """Returns one copy, where JAX made it."""
        del per_replica
        return OnOneDevice()

    @property
    def num_replicas_in_sync(self) -> int:
        """1: nothing is distributed, and no device needs to be known."""
        return 1

    def default_replica_context(self) -> ReplicaContext:
        """Returns the context that code is in outside of any scope."""
        return self._context

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Calls `fn` as ordinary Python. See `Strategy.run`."""
        del options
        scopes.require_cross_replica("run", self)
        args, kwargs = checked_call("run", fn, args, kwargs)
        require_plain(fn)
        args, kwargs = jax.tree.map(
            lambda v: v.values[0] if isinstance(v, DistributedValues) else v,
            (args, kwargs),
            is_leaf=lambda v: isinstance(v, DistributedValues | Variable),
        )
        with scopes.replica(self._context):
            return fn(*args, **kwargs)

    def experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> Dataset:
        """Returns the dataset itself. See `Strategy.experimental_distribute_dataset`."""
        del options
        return as_dataset(dataset)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Returns the function's dataset. See `Strategy.distribute_datasets_from_function`."""
        del options
        return call_for_input("dataset_fn", dataset_fn, InputContext())

    def __repr__(self) -> str:
        """Returns the class name: there is one default strategy."""
        return "DefaultStrategy()"


def _default_mesh() -> ReplicaMesh:
    # Called when the mesh is first needed: the strategy exists before devices are chosen.
    return replica_mesh((jax.local_devices()[0],))

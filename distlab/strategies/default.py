"""The strategy that holds where no other does: one replica, nothing distributed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, final

import jax

from distlab.collectives.cross_device_ops import as_cross_device_ops
from distlab.collectives.lone import LoneCollectives
from distlab.context import scopes
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.data import Dataset, as_dataset
from distlab.devices.mesh import ReplicaMesh, replica_mesh
from distlab.errors import ContextError
from distlab.input.context import InputContext
from distlab.input.distribute import call_for_input
from distlab.input.options import InputOptions
from distlab.strategies.abstract import Strategy
from distlab.strategies.extended import StrategyExtended
from distlab.values.checks import checked_call, require_plain
from distlab.values.current_batch import Fed
from distlab.values.distributed import DistributedValues
from distlab.variables.storage import Storage
from distlab.variables.variable import Variable


@final
class DefaultStrategy(Strategy):
    """What `get_strategy()` gives outside of any scope.

    Programs written for a strategy run under it unchanged: `run` calls the
    function as it is, on JAX's default device.
    """

    distributed: ClassVar[bool] = False
    number: ClassVar[int] = -1
    fed: ClassVar[Fed] = Fed()

    _only: ClassVar[DefaultStrategy | None] = None

    def __init__(self) -> None:
        # It exists before devices are chosen, so it must not look at them here.
        if DefaultStrategy._only is not None:
            raise ContextError(
                "There is one default strategy. Get it with distlab.get_strategy() outside of any "
                "scope, or make a OneDeviceStrategy."
            )
        DefaultStrategy._only = self
        self.cross_device_ops = as_cross_device_ops(None)
        self.extended = StrategyExtended(self)
        self._context = ReplicaContext(self, LoneCollectives())

    @cached_property
    def mesh(self) -> ReplicaMesh:
        """JAX's default device."""
        return replica_mesh((jax.local_devices()[0],))

    def store(self, value: jax.Array, *, per_replica: bool) -> Storage:
        """Leaves the value where it is."""
        del per_replica
        return Storage(value, "single")

    @property
    def num_replicas_in_sync(self) -> int:
        """Is 1."""
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

    experimental_run_v2 = run
    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def __repr__(self) -> str:
        """Says what it is."""
        return "DefaultStrategy()"

"""The strategy outside of any scope: one replica, nothing distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import jax

from distlab.collectives.lone import LoneCollectives
from distlab.context import scopes
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.data import Dataset, as_dataset
from distlab.devices.layouts import Layout, NewVariable, OnOneDevice
from distlab.devices.mesh import ReplicaMesh, replica_mesh
from distlab.errors import ContextError
from distlab.input.context import InputContext
from distlab.input.distribute import call_for_input
from distlab.input.options import InputOptions
from distlab.step.eager import axis as eager_axis
from distlab.step.functions.holders import is_state_holder
from distlab.step.programs.place import Place
from distlab.step.programs.results import undeclared
from distlab.strategies.abstract import Strategy
from distlab.values.checks import checked_call, require_plain
from distlab.values.distributed import DistributedValues
from distlab.variables.variable import Variable

_NUMBER: Final = -1
"""The number in this strategy's events, which no event describes."""


@final
class DefaultStrategy(Strategy):
    """The strategy outside of any scope: `run` calls the function as ordinary Python."""

    distributed: ClassVar[bool] = False
    keeps_one_copy: ClassVar[bool] = True
    _only: ClassVar[DefaultStrategy | None] = None

    def __init__(self) -> None:
        if DefaultStrategy._only is not None:
            raise ContextError("There is one default strategy. Call distlab.get_strategy().")
        DefaultStrategy._only = self
        super().__init__(Place(_NUMBER, _default_mesh))
        self._context = ReplicaContext(self, LoneCollectives())

    def variable_layout(self, *, per_replica: bool, of: NewVariable | None = None) -> Layout:
        """Returns one copy, on the device where JAX made it."""
        del per_replica, of
        return OnOneDevice()

    @property
    def num_replicas_in_sync(self) -> int:
        """1, without starting JAX to find the device."""
        return 1

    def default_replica_context(self) -> ReplicaContext:
        """Returns the replica context of code outside of any scope."""
        return self._context

    def _run(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None
    ) -> Any:
        """Calls `fn` as ordinary Python."""
        del options
        scopes.require_cross_replica("run", self)
        args, kwargs = checked_call("run", fn, args, kwargs)
        require_plain(fn)
        args, kwargs = jax.tree.map(
            lambda v: v.values[0] if isinstance(v, DistributedValues) else v,
            (args, kwargs),
            is_leaf=lambda v: isinstance(v, DistributedValues | Variable) or is_state_holder(v),
        )
        differ = self._context.collectives.differ
        with scopes.replica(self._context), eager_axis.bound(1, 0, self._operate, differ):
            return undeclared(fn(*args, **kwargs))

    def _operate(
        self, operation: eager_axis.Operation, operands: list[jax.Array]
    ) -> Sequence[jax.Array]:
        """Returns the results of an operation of JAX over the axis of one replica."""
        known, stacked = eager_axis.joined([operation], [operands], self.mesh)
        (results,) = eager_axis.run(known, stacked, self.mesh)
        return results

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
    # Called when first needed: the strategy exists before the user chooses devices.
    return replica_mesh((jax.local_devices()[0],))

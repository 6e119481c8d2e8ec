"""Keras' variables on the replicas' devices.

A variable of Keras that is made in a strategy's scope keeps its value in a variable of distlab from
the start: in replica functions, in `fit` and outside of both, Keras reads and assigns that one.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, cast, final

from keras.src.distribution import distribution_lib

from distlab.context import scopes
from distlab.devices import jax_internals
from distlab.devices.mesh import MODEL
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import get_strategy
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.variables import frames, replicas
from distlab.variables.kinds import VariableAggregation, VariableSynchronization
from distlab.variables.storage import Storage
from distlab.variables.variable import Variable

Kind: TypeAlias = Literal["trainable", "non_trainable", "optimizer", "metrics"]

_AGGREGATIONS: Final = {
    "none": VariableAggregation.NONE,
    "sum": VariableAggregation.SUM,
    "mean": VariableAggregation.MEAN,
    "only_first_replica": VariableAggregation.ONLY_FIRST_REPLICA,
}
_ATTRIBUTE: Final = "_distlab_held"


class _Making(threading.local):
    of_optimizer = False
    layout: tuple[Any, ...] | None = None


_making: Final = _Making()


@contextlib.contextmanager
def making(*, of_optimizer: bool) -> Iterator[None]:
    """Marks variables that are made in a block as an optimizer's, which replicas compute alike."""
    before, _making.of_optimizer = _making.of_optimizer, of_optimizer
    try:
        yield
    finally:
        _making.of_optimizer = before


@contextlib.contextmanager
def lying_as(keras: Any) -> Iterator[None]:
    """Lets variables that are made in a block lie on a replica's devices as another does."""
    held = held_of(keras)
    spec = () if held is None else tuple(held.variable.storage.layout.spec)
    before, _making.layout = _making.layout, spec if MODEL in spec else None
    try:
        yield
    finally:
        _making.layout = before


@final
class Held:
    """A variable of Keras on the replicas' devices.

    Attributes:
      variable: The variable of distlab.
    """

    __slots__ = ("_adds", "_first", "_shown", "_source", "variable")

    def __init__(self, keras: Any, array: Any, strategy: Strategy) -> None:
        on_read = keras.synchronization == "on_read"
        aggregation = _AGGREGATIONS[keras.aggregation]
        one_copy = strategy.variable_layout(per_replica=False).one_copy
        if one_copy and aggregation is VariableAggregation.NONE:
            aggregation = VariableAggregation.ONLY_FIRST_REPLICA
        # Batch statistics, as in Keras on TensorFlow, and gradients that are not added up yet.
        own_copies = (
            keras.aggregation == "none"
            and not (keras.trainable or on_read)
            and (not _making.of_optimizer or "gradient_accumulator" in keras.name)
        )
        self.variable = Variable(
            array,
            name=keras.path or keras.name,
            trainable=bool(keras.trainable),
            aggregation=aggregation,
            synchronization=VariableSynchronization.ON_READ
            if on_read
            else VariableSynchronization.AUTO,
            layout=() if own_copies and strategy.divided.least else _making.layout,
        )
        self._storage.own_copies = own_copies
        # Keras' metrics assign what they had and what a batch adds to it. Where replicas share one
        # copy, and their values are added up, each gives what it adds alone.
        self._adds = shares_copies(strategy) and on_read and keras.aggregation == "sum"
        self._first = aggregation is VariableAggregation.ONLY_FIRST_REPLICA and not one_copy
        self._note(array)

    def value(self) -> Any:
        """Returns the present value: the replica's own in a replica function."""
        return self.show() if frames.current() is None else self.variable.value()

    def set(self, array: Any) -> None:
        """Assigns an array, unless Keras gives back what `show` returned, and it is so still."""
        if frames.current() is not None:
            self.assign(array, self.variable.value() if self._adds else None)
        elif array is not self._shown() or not self._storage.holds(self._source):
            self.variable.assign(array)
            self._note(array)

    def assign(self, value: Any, before: Any) -> None:
        """Assigns what a replica computed."""
        if self._adds:
            self.variable.assign_add(value - before)
        else:
            self.variable.assign(value)

    def assign_of_step(self, value: Any, before: Any) -> None:
        """Assigns what a step of Keras computed, in which replicas count steps alike."""
        frame = frames.current()
        if self._first and frame is not None:
            frame.set(self.variable, value)
        else:
            self.assign(value, before)

    def show(self) -> Any:
        """Returns the present value for Keras: a plain array on one device.

        What JAX traces outside of `run` holds it as a constant, as of any variable of Keras.
        """
        with jax_internals.outside_of_traces():
            array = self.variable.value()
        self._note(array)
        return array

    @property
    def _storage(self) -> Storage:
        return cast(Storage, self.variable.storage)  # no parameter server's

    def _note(self, array: Any) -> None:
        """Notes the array that Keras has, which it gives back when an epoch ends."""
        self._shown, self._source = weakref.ref(array), self._storage.reference()


@final
class Group(Sequence[Any]):
    """The variables of one kind as Keras passes them around: a sequence of arrays, read late."""

    def __init__(self, members: list[Held]) -> None:
        self.members = members

    def __len__(self) -> int:
        """Returns the number of variables."""
        return len(self.members)

    def __iter__(self) -> Iterator[Any]:
        """Yields their present values."""
        return (held.show() for held in self.members)

    def __getitem__(self, position: Any) -> Any:
        """Returns one present value, or several."""
        if isinstance(position, slice):
            return [held.show() for held in self.members[position]]
        return self.members[position].show()


def shares_copies(strategy: Strategy) -> bool:
    """Returns whether several replicas share one copy of each variable."""
    return strategy.keeps_one_copy and strategy.num_replicas_in_sync > 1


def group_of(kind: Kind, variables: Sequence[Any], arrays: Any, strategy: Strategy) -> Group:
    """Returns variables with the values that Keras holds."""
    with making(of_optimizer=kind == "optimizer"):
        return Group(
            [
                _held(variable, array, strategy)
                for variable, array in zip(variables, arrays, strict=True)
            ]
        )


def held_of(keras: Any) -> Held | None:
    """Returns what holds a variable's value; None if Keras does."""
    held: Held | None = getattr(keras, _ATTRIBUTE, None)
    return held


def is_held_from_start() -> bool:
    """Returns whether a variable of Keras that is made here lives on a strategy's devices."""
    return (
        scopes.has_strategy()
        and not isinstance(get_strategy(), ParameterServerStrategy)
        and distribution_lib.distribution() is None
    )


def is_of_current(keras: Any) -> bool:
    """Returns whether a variable was made in the scope of the strategy that is current."""
    held = held_of(keras)
    return held is not None and held.variable.strategy is scopes.current_strategy()


def hold(keras: Any, array: Any) -> Held:
    """Puts a variable of Keras on the devices of the strategy in scope."""
    held = Held(keras, array, get_strategy())
    object.__setattr__(keras, _ATTRIBUTE, held)
    return held


def hold_outside(keras: Any) -> Held:
    """Puts a variable that was made in no scope where a replica function can read and assign it.

    All replicas share it, as TensorFlow's replicas share such a variable.
    """

    def make() -> Held:
        with scopes.outside():
            return hold(keras, keras.__dict__["_value"])

    held: Held = replicas.made_once(make, keras.path or keras.name)
    keras.__dict__["_value"] = None
    return held


def _held(keras: Any, array: Any, strategy: Strategy) -> Held:
    held = held_of(keras)
    if held is None or held.variable.strategy is not strategy:
        with strategy.scope():
            held = hold(keras, array)
    else:
        held.set(array)
    return held

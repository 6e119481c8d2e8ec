"""The variables of a model on the replicas' devices, beside Keras' own.

While a model trains, its state is in distlab's variables. Keras passes its arrays in before the
first step, and reads the state when it asks for it: at the end of an epoch, or for a callback.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, final

from distlab.strategies.abstract import Strategy
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


@final
class Held:
    """A variable of Keras on the replicas' devices.

    `away` while Keras has given its own value away, until the end of the epoch.
    """

    __slots__ = ("_adds", "_shown", "away", "variable")

    def __init__(self, keras: Any, array: Any, kind: Kind, strategy: Strategy) -> None:
        aggregation, synchronization = _kind_of(keras, kind, strategy)
        with strategy.scope():
            self.variable = Variable(
                array,
                name=keras.path or keras.name,
                trainable=bool(keras.trainable),
                aggregation=aggregation,
                synchronization=synchronization,
            )
        if isinstance(self.variable.storage, Storage):
            # Batch statistics: each replica keeps those of its part, as in Keras on TensorFlow.
            own = kind == "non_trainable" and keras.aggregation == "none"
            self.variable.storage.own_copies = own
        # Keras' metrics assign what they had and what a batch adds to it. Where replicas share one
        # copy, and their values are added up, each gives what it adds alone.
        self._adds = (
            shares_copies(strategy) and kind == "metrics" and aggregation is VariableAggregation.SUM
        )
        self._shown = weakref.ref(array)
        self.away = False

    def receive(self, array: Any) -> None:
        """Assigns what Keras holds, unless it is what `show` returned last."""
        if array is not self._shown():
            self.variable.assign(array)
            self._shown = weakref.ref(array)

    def comes_back(self, array: Any) -> bool:
        """Returns whether Keras takes its value back; any other value is assigned here."""
        if array is self._shown():
            self.away = False
            return True
        self.receive(array)
        return False

    def assign(self, value: Any, before: Any) -> None:
        """Assigns what a replica computed."""
        if self._adds:
            self.variable.assign_add(value - before)
        else:
            self.variable.assign(value)

    def show(self) -> Any:
        """Returns the present value for Keras: a plain array on one device."""
        array = self.variable.value()
        self._shown = weakref.ref(array)  # which Keras gives away when the next epoch begins
        return array


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
    """Returns the variables of one kind with the values that Keras holds."""
    return Group(
        [
            _held(variable, array, kind, strategy)
            for variable, array in zip(variables, arrays, strict=True)
        ]
    )


def held_of(keras: Any) -> Held | None:
    """Returns what holds a variable's value while its model trains; None if it never did."""
    held: Held | None = getattr(keras, _ATTRIBUTE, None)
    return held


def _held(keras: Any, array: Any, kind: Kind, strategy: Strategy) -> Held:
    held = held_of(keras)
    if held is None or held.variable.strategy is not strategy:
        held = Held(keras, array, kind, strategy)
        object.__setattr__(keras, _ATTRIBUTE, held)
    else:
        held.receive(array)
    held.away = keras._value is None
    return held


def _kind_of(
    keras: Any, kind: Kind, strategy: Strategy
) -> tuple[VariableAggregation, VariableSynchronization]:
    """Returns what replicas' assignments become, as in Keras on TensorFlow."""
    if kind == "metrics":
        # Each replica counts by itself; a result is computed from what all of them counted.
        return _AGGREGATIONS[keras.aggregation], VariableSynchronization.ON_READ
    if kind == "non_trainable" and keras.aggregation != "none":
        return _AGGREGATIONS[keras.aggregation], VariableSynchronization.AUTO
    # Replicas compute equal values, from gradients that were added up. What they compute by
    # themselves, such as the statistics of their part of a batch, each one keeps.
    one_copy = strategy.variable_layout(per_replica=False).one_copy
    one = VariableAggregation.ONLY_FIRST_REPLICA if one_copy else VariableAggregation.NONE
    return one, VariableSynchronization.AUTO

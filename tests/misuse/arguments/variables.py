"""Arguments of variables."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World

_NUMBERS = (
    "negative fraction nan complex true list empty_list empty_tuple scalar_array "
    "variable variable_of_other"
)


@row("Variable.initial_value", f"{_NUMBERS} type function key")
def _(w: World, v: Any) -> object:
    with w.strategy.scope():
        return dl.Variable(v)


@row("Variable.name", "none text")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, name=v)


@row("Variable.aggregation")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, aggregation=v)


@row("Variable.synchronization")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, synchronization=v)


@row("Variable.dtype", "none type variable variable_of_other")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, dtype=v)


@row("Variable.trainable", "none true")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, trainable=v)


@row(
    "Variable.assign.value",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign(v)


@row(
    "Variable.assign_add.delta",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign_add(v)


@row(
    "Variable.assign_sub.delta",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign_sub(v)


@row("VariableCopy.assign.value", "list variable variable_of_other", tells="empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return w.weights.values[0].assign(v)

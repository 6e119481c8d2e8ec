"""Arguments of strategy.extended."""

from __future__ import annotations

from typing import Any

from tests.misuse.table import row
from tests.misuse.world import World


@row("extended.update.var", "variable", tells="variable_of_other")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.update(v, lambda copy: copy.value())


@row("extended.update.fn", users="type function")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.update(w.weights, v)


@row("extended.update.args", "list empty_list empty_tuple uneven_list")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.update(w.weights, lambda _, *__: 0, args=v)


@row("extended.update_non_slot.colocate_with", tells="generator dataset")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.update_non_slot(v, lambda: 0)


@row("extended.update_non_slot.fn", "type function")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.update_non_slot(["CPU:0"], v, group=False)


@row("extended.reduce_to.value", "empty_list empty_tuple per_replica variable variable_of_other")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.reduce_to("SUM", v, w.weights)


@row("extended.reduce_to.destinations", "things texts scalar_array key per_replica variable")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.reduce_to("SUM", w.x, v)


@row("extended.batch_reduce_to.pairs", "empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.batch_reduce_to("SUM", v)


@row("extended.batch_reduce_to.a_pair")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.batch_reduce_to("SUM", [(w.x, "CPU:0"), v])


_NUMBERS = (
    "negative fraction nan complex true list empty_list empty_tuple scalar_array "
    "variable variable_of_other"
)


@row("extended.broadcast_to.tensor", f"{_NUMBERS} key")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.broadcast_to(v, "CPU:1")


@row("extended.broadcast_to.destinations", "things texts scalar_array key per_replica variable")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.broadcast_to(1.0, v)


@row("extended.read_var.v", "variable variable_of_other")
def _(w: World, v: Any) -> object:
    return w.strategy.extended.read_var(v)


@row("extended.colocate_vars_with.variable", "variable")
def _(w: World, v: Any) -> object:
    with w.strategy.scope(), w.strategy.extended.colocate_vars_with(v):
        return None

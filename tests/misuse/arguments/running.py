"""Arguments of run, and of the verbs that take and give its values."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.values import VALUES
from tests.misuse.world import World

_ALL = " ".join(VALUES)


@row("run.fn", "type function")
def _(w: World, v: Any) -> object:
    return w.strategy.run(v)


@row("run.args", "list empty_list empty_tuple uneven_list")
def _(w: World, v: Any) -> object:
    return w.strategy.run(lambda *_: 0, args=v)


@row(
    "run.an_argument",
    "none text bytes thing mute type function negative fraction nan complex true date list "
    "empty_list empty_tuple uneven_list dict set things texts scalar_array key "
    "per_replica variable variable_of_other strategy dataset",
)
def _(w: World, v: Any) -> object:
    return w.strategy.run(lambda a: a, args=(v,))


@row("run.kwargs", "none dict")
def _(w: World, v: Any) -> object:
    return w.strategy.run(lambda **_: 0, kwargs=v)


@row("run.options", "none")
def _(w: World, v: Any) -> object:
    return w.strategy.run(lambda: 0, options=v)


@row("RunOptions.donate_argnums", "empty_tuple")
def _(w: World, v: Any) -> object:
    return w.strategy.run(lambda: 0, options=dl.RunOptions(donate_argnums=v))


@row("RunOptions.run_eagerly", "none true")
def _(w: World, v: Any) -> object:
    return dl.RunOptions(run_eagerly=v)


@row("RunOptions.experimental_enable_dynamic_batch_size", "true")
def _(w: World, v: Any) -> object:
    return dl.RunOptions(experimental_enable_dynamic_batch_size=v)


@row("run_functions_eagerly", "true")
def _(w: World, v: Any) -> None:
    dl.run_functions_eagerly(v)
    dl.run_functions_eagerly(False)


@row("reduce.reduce_op")
def _(w: World, v: Any) -> object:
    return w.strategy.reduce(v, w.x, axis=None)


@row("reduce.value", "empty_list empty_tuple per_replica variable variable_of_other")
def _(w: World, v: Any) -> object:
    return w.strategy.reduce("SUM", v, axis=None)


@row("reduce.axis", "none negative empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return w.strategy.reduce("SUM", w.x, axis=v)


@row("gather.value", "empty_list empty_tuple per_replica variable")
def _(w: World, v: Any) -> object:
    return w.strategy.gather(v, axis=0)


@row("gather.axis", "negative")
def _(w: World, v: Any) -> object:
    return w.strategy.gather(w.x, axis=v)


_READABLE = " ".join(name for name in VALUES if name != "donated")


@row("experimental_local_results.value", _READABLE)
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_local_results(v)


@row("unwrap.value", _READABLE)
def _(w: World, v: Any) -> object:
    return w.strategy.unwrap(v)


@row(
    "replicate.tree",
    "none text bytes thing mute type function negative fraction nan complex true date list "
    "empty_list empty_tuple uneven_list dict set generator things texts scalar_array key variable "
    "variable_of_other strategy dataset",
)
def _(w: World, v: Any) -> object:
    return w.strategy.replicate(v)


@row("values_from_function.value_fn", tells="function", users="type")
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_distribute_values_from_function(v)


@row("values_from_function.a_value", _ALL)
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_distribute_values_from_function(lambda _: v)

"""Arguments of loops, background functions and the number of devices."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World


@row("use_cpu_devices.count")
def _(w: World, v: Any) -> None:
    dl.use_cpu_devices(v)


@row(
    "controlled.elements",
    "text bytes list empty_list empty_tuple uneven_list dict set generator things texts variable "
    "variable_of_other dataset",
    users="deleted leaked",
)
def _(w: World, v: Any) -> object:
    return list(dl.controlled(v))


@row("controlled.name", "text")
def _(w: World, v: Any) -> object:
    return dl.controlled([1], name=v)


@row("controlled.pause_seconds", "fraction big")
def _(w: World, v: Any) -> object:
    return dl.controlled([1], pause_seconds=v)


@row("background.function", "type function")
def _(w: World, v: Any) -> object:
    return dl.background(v).result()

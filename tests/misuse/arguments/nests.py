"""Arguments of distlab.nest, where every value is a nest or a leaf."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.values import VALUES
from tests.misuse.world import World

_ALL = " ".join(VALUES)


@row("nest.is_nested.structure", _ALL)
def _(w: World, v: Any) -> object:
    return dl.nest.is_nested(v)


@row("nest.flatten.structure", _ALL)
def _(w: World, v: Any) -> object:
    return dl.nest.flatten(v)


@row("nest.map_structure.func", users="type function")
def _(w: World, v: Any) -> object:
    return dl.nest.map_structure(v, [1, 2], [3, 4])


@row("nest.map_structure.another", "list", tells=_ALL)
def _(w: World, v: Any) -> object:
    return dl.nest.map_structure(lambda *leaves: leaves, [1, 2], v)


@row("nest.pack_sequence_as.flat_sequence", "list uneven_list", tells=_ALL)
def _(w: World, v: Any) -> object:
    return dl.nest.pack_sequence_as({"a": 1, "b": 2}, v)


@row("nest.assert_same_structure.nest2", "list", tells=_ALL)
def _(w: World, v: Any) -> object:
    dl.nest.assert_same_structure([1, 2], v)
    return None


@row("nest.flatten_up_to.input_tree", "list uneven_list", tells=_ALL)
def _(w: World, v: Any) -> object:
    return dl.nest.flatten_up_to([1, 2], v)

"""Arguments of distlab.nn."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World

_LOSSES = "list empty_list empty_tuple variable variable_of_other"


@row(
    "nn.compute_average_loss.per_example_loss",
    _LOSSES,
    tells="negative fraction nan complex true scalar_array",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return dl.nn.compute_average_loss(v)


@row(
    "nn.compute_average_loss.sample_weight",
    "none negative fraction nan complex true list scalar_array variable variable_of_other",
    tells="empty_list empty_tuple",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return dl.nn.compute_average_loss([1.0, 2.0], v)


@row("nn.compute_average_loss.global_batch_size", "none", on_replicas=True)
def _(w: World, v: Any) -> object:
    return dl.nn.compute_average_loss([1.0], global_batch_size=v)


@row(
    "nn.scale_regularization_loss.loss",
    f"{_LOSSES} negative fraction nan complex true scalar_array",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return dl.nn.scale_regularization_loss(v)

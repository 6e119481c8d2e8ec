"""Arguments of strategies, algorithms and options when they are made."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World


@row("MirroredStrategy.devices", "none", tells="generator dataset")
def _(w: World, v: Any) -> object:
    return dl.MirroredStrategy(v)


@row("MirroredStrategy.cross_device_ops", "none")
def _(w: World, v: Any) -> object:
    return dl.MirroredStrategy(["CPU:0"], cross_device_ops=v)


@row("OneDeviceStrategy.device")
def _(w: World, v: Any) -> object:
    return dl.OneDeviceStrategy(v)


@row("CentralStorageStrategy.compute_devices", "none", tells="generator dataset")
def _(w: World, v: Any) -> object:
    return dl.experimental.CentralStorageStrategy(v)


@row("ParameterServerStrategy.cluster_resolver")
def _(w: World, v: Any) -> object:
    return dl.ParameterServerStrategy(v)


@row("MultiWorkerMirroredStrategy.cluster_resolver", "none")
def _(w: World, v: Any) -> object:
    return dl.MultiWorkerMirroredStrategy(cluster_resolver=v)


@row("MultiWorkerMirroredStrategy.communication_options", "none")
def _(w: World, v: Any) -> object:
    return dl.MultiWorkerMirroredStrategy(communication_options=v)


@row("MultiWorkerMirroredStrategy.devices_per_worker", "none")
def _(w: World, v: Any) -> object:
    return dl.MultiWorkerMirroredStrategy(devices_per_worker=v)


@row("TPUStrategy.tpu_cluster_resolver", "none")
def _(w: World, v: Any) -> object:
    return dl.TPUStrategy(v)


@row("TPUStrategy.experimental_device_assignment", "none")
def _(w: World, v: Any) -> object:
    return dl.TPUStrategy(experimental_device_assignment=v)


@row("NcclAllReduce.num_packs")
def _(w: World, v: Any) -> object:
    return dl.NcclAllReduce(num_packs=v)


@row("HierarchicalCopyAllReduce.num_packs")
def _(w: World, v: Any) -> object:
    return dl.HierarchicalCopyAllReduce(num_packs=v)


@row("ReductionToOneDevice.reduce_to_device", "none")
def _(w: World, v: Any) -> object:
    return dl.ReductionToOneDevice(reduce_to_device=v)


@row("ReductionToOneDevice.accumulation_fn", "none type function")
def _(w: World, v: Any) -> object:
    return dl.ReductionToOneDevice(accumulation_fn=v)


@row("CommunicationOptions.bytes_per_pack", "big huge")
def _(w: World, v: Any) -> object:
    return dl.experimental.CommunicationOptions(bytes_per_pack=v)


@row("CommunicationOptions.timeout_seconds", "none fraction big")
def _(w: World, v: Any) -> object:
    return dl.experimental.CommunicationOptions(timeout_seconds=v)


@row("CommunicationOptions.implementation")
def _(w: World, v: Any) -> object:
    return dl.experimental.CommunicationOptions(implementation=v)


@row("experimental_set_strategy", "none strategy")
def _(w: World, v: Any) -> None:
    dl.experimental_set_strategy(v)
    dl.experimental_set_strategy(None)

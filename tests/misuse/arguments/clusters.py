"""Arguments of clusters, TPU topologies and coordinators."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World


@row("ClusterSpec")
def _(w: World, v: Any) -> object:
    return dl.ClusterSpec(v)


@row("SimpleClusterResolver.cluster_spec")
def _(w: World, v: Any) -> object:
    return dl.cluster_resolver.SimpleClusterResolver(v)


@row("UnionResolver")
def _(w: World, v: Any) -> object:
    return dl.cluster_resolver.UnionResolver(v)


@row("Server.cluster")
def _(w: World, v: Any) -> object:
    return dl.Server(v)


@row("DeviceAssignment.build.topology")
def _(w: World, v: Any) -> object:
    return dl.tpu.DeviceAssignment.build(v)


@row("DeviceAssignment.build.num_replicas")
def _(w: World, v: Any) -> object:
    return dl.tpu.DeviceAssignment.build(dl.tpu.Topology(), num_replicas=v)


@row("ClusterCoordinator.strategy")
def _(w: World, v: Any) -> object:
    return dl.coordinator.ClusterCoordinator(v)

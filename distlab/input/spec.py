"""The shapes and dtypes of distributed datasets' elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distlab.data import TensorSpec
from distlab.data.plan.nest import map_nest


@dataclass(frozen=True)
class PerReplicaSpec:
    """The shapes and dtypes of one per-replica value.

    Attributes:
      value_specs: One spec for each replica, in replica order. Dtypes are the
        dataset's; on devices JAX stores 64-bit numbers in 32 bits unless
        `jax_enable_x64` is set.
    """

    value_specs: tuple[TensorSpec, ...]


def per_replica_spec(spec: Any, replicas: int) -> Any:
    """Returns the nest of specs of per-replica elements."""
    if replicas == 1:
        return spec
    return map_nest(lambda leaf: PerReplicaSpec((leaf,) * replicas), spec)


def divided_spec(spec: Any, replicas: int) -> Any:
    """Returns the specs of a replica's part of global batches, which may differ in size."""
    return map_nest(lambda leaf: _divided(leaf, replicas), spec)


def varying_spec(spec: Any) -> Any:
    """Returns the specs with unknown first dimensions, for parts that may be empty."""
    return map_nest(
        lambda leaf: TensorSpec((None, *leaf.shape[1:]), leaf.dtype) if leaf.shape else leaf, spec
    )


def _divided(spec: TensorSpec, replicas: int) -> TensorSpec:
    if replicas == 1 or not spec.shape:
        return spec
    batch, *rest = spec.shape
    part = None if batch is None or batch % replicas else batch // replicas
    return TensorSpec((part, *rest), spec.dtype)

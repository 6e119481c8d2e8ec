"""Flax on distlab. Nothing here imports Flax before it is used."""

from __future__ import annotations

from distlab.step.arguments import in_place


def offer() -> None:
    """Makes objects of Flax NNX arguments of `run` once `flax.nnx` is imported."""
    in_place.offer("flax.nnx", _objects)


def _objects() -> in_place.Library:
    from distlab.integrations.flax.objects import NnxObjects

    return NnxObjects()

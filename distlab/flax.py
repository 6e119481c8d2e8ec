"""Layers of Flax NNX that know the replicas. They need Flax: pip install "distlab[flax]".

Flax's own objects need nothing from here: `strategy.run` updates them in place.

Example:
  >>> import distlab as dl
  >>> from flax import nnx
  >>> norm = dl.flax.BatchNorm(3, rngs=nnx.Rngs(0))
  >>> isinstance(norm, nnx.BatchNorm)
  True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlab.errors import MissingExtraError

if TYPE_CHECKING:
    from distlab.integrations.flax.norm import BatchNorm

__all__ = ["BatchNorm"]


def __getattr__(name: str) -> Any:
    """Imports Flax when the first layer is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'distlab.flax' has no attribute {name!r}")
    try:
        from distlab.integrations.flax import norm
    except ImportError as error:
        raise MissingExtraError(
            "distlab.flax has layers of Flax NNX, and Flax is not installed. Install it with: pip "
            'install "distlab[flax]".'
        ) from error
    return getattr(norm, name)

"""Adds distlab's part to Keras once Keras has been imported."""

from __future__ import annotations

from typing import Final

from distlab.integrations.hook import when_imported

_BACKENDS: Final = frozenset({"tensorflow", "torch", "jax", "openvino"})


def watch_for_keras() -> None:
    """Prepares Keras for strategies: now if it has been imported, else when it is."""
    when_imported("keras", "Model", _prepare, _explain)


def _prepare() -> None:
    from distlab.integrations.keras.patches import prepare

    prepare()


def _explain(error: ImportError) -> None:
    """Says which backend Keras needs, where the one that it asked for is not installed."""
    if error.name in _BACKENDS:
        error.add_note(
            f"Keras asked for its backend {error.name!r}. distlab distributes Keras on JAX: set "
            'KERAS_BACKEND=jax, or os.environ["KERAS_BACKEND"] = "jax", before keras is imported.'
        )

"""What distlab has for Keras 3, beside `fit` and its relatives under a strategy."""

from __future__ import annotations

from distlab.integrations.keras.weighing import weigh_by

__all__ = ["weigh_by"]

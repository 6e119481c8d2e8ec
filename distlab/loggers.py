"""Loggers, which report a run to other tools while it goes on: TensorBoard, MLflow, W&B, or yours.

`dl.record(..., loggers=[...])` takes them.
"""

from __future__ import annotations

from distlab.integrations.mlflow.logger import MLflow
from distlab.integrations.wandb.logger import WandB
from distlab.tracking.logger import Logger, RunFacts
from distlab.tracking.tensorboard import TensorBoard

__all__ = ["Logger", "MLflow", "RunFacts", "TensorBoard", "WandB"]

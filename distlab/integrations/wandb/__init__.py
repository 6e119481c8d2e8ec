"""Weights & Biases on distlab: a logger. wandb is imported when one is made."""

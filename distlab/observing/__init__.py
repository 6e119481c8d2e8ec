"""Programs of plain JAX, without a strategy, as they are compiled and run."""

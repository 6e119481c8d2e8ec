"""The arguments of one call of `run`."""

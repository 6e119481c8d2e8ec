"""One call of `Strategy.run`: from arguments to a compiled program and its results."""

"""Which strategy is in scope, in which of its contexts, and how functions run."""

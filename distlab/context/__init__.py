"""The current strategy and its context, and the mode in which functions run."""

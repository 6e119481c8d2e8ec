"""Sources of elements."""

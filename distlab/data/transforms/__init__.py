"""Transformations of elements and of their order."""

"""Replica functions compiled for one set of shapes."""

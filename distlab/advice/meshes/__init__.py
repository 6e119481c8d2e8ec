"""Advice on programs of meshes, from what XLA made of them: one file a cause."""

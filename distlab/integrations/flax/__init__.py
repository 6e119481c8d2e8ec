"""Flax on distlab. Nothing here imports Flax before it is used."""

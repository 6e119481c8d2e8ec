"""Distributed input: global batches in, per-replica values out."""

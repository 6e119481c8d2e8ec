"""Collectives: inside a step, and in cross-replica context."""

"""Loops that can be paused and stepped, and functions in background threads."""

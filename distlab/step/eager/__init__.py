"""Replica functions run as ordinary Python."""

"""Meshes of devices: the blocks that divided arrays have on them, and their drawing."""

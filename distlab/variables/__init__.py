"""Variables, their kinds, and the storage of their copies."""

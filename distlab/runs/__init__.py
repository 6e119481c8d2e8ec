"""Run files: written, read, listed, summed up and exported."""

"""Workers for a notebook, on the engines of ipyparallel; it is imported when a cluster starts."""

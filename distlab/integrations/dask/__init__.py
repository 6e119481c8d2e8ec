"""Workers and parameter servers in other processes, on Dask distributed; imported when some start.

Dask starts the processes, knows which of them live and carries messages. Closures and values do not
pass its scheduler: they travel by handlers that a plugin adds to Dask's workers.
"""

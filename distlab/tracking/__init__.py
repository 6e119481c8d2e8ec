"""Reports of a run to other tools: the `Logger` that receives them, and TensorBoard's event files.

`Relay` turns a run's events into a logger's calls, for live recordings and recorded runs alike.
"""

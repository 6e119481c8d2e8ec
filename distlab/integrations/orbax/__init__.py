"""Checkpoints on Orbax: `distlab.train` and preemption.

From an object to a file: `walk` finds the leaves that are state, and names them; `kinds` turns
each into an array or JSON, and back; `files` writes and reads both with Orbax; `checkpoint` and
`manager` are tf.train's classes on top.
"""

"""Checkpoints on Orbax: what `distlab.train` offers, and Orbax used directly.

From an object to a file: `walk` finds the leaves that are state, and names them; `kinds` and
`array_kinds` turn each into an array or JSON, and back; `files` writes and reads both with Orbax;
`checkpoint` and `manager` are tf.train's classes on top.
"""

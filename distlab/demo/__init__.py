"""The demo: handwritten digits, learned on several devices at once.

`digits` reads the data, `model` is plain JAX, `training` is the loop with
distlab, and `progress` prints one line. Its code is meant to be copied.
"""

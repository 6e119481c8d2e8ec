"""The demo: handwritten digits, learned on several devices at once.

`digits` reads the data, `model` is plain JAX, and `training` is the loop with
distlab. Its code is meant to be copied.
"""

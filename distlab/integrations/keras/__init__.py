"""Keras 3 on JAX: `fit` and its relatives on a strategy's replicas.

Keras asks `tf.distribute` for its strategy in a few places of its TensorFlow backend. On JAX, each
of these places asks distlab: `patches` waits for Keras, and adds the questions. A model that
was made in no strategy's scope runs Keras' own code.
"""

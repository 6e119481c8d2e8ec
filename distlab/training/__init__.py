"""Training loops on the host: Orbit's controller, and TensorFlow's Estimator on top of it."""

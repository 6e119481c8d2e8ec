"""Steps whose replicas have batches of different shapes."""

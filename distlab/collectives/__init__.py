"""How replicas combine values: inside of a step, and from cross-replica context."""

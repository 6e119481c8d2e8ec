"""JAX's traces: operations, dependencies and where replicas part."""

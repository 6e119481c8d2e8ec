"""JAX's devices: finding them, the replicas' mesh, and the limit on steps in flight."""

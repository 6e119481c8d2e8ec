"""JAX's devices: which there are, the replicas' mesh, and how many steps are in flight."""

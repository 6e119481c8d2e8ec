"""Values distributed over the replicas, and what they refuse and accept."""

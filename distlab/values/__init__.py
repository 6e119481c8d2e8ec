"""Values distributed over the replicas, and checks of the values that verbs accept."""

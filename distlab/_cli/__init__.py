"""The subcommands of `distlab`, one per file; none imports JAX before it runs."""

"""The subcommands of `distlab`, one a file; none imports JAX before it runs."""

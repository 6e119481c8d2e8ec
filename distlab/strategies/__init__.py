"""The strategies: one final class a file, on one abstract base."""

"""Findings about a compiled step, which advice and pages show."""

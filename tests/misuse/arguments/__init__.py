"""The rows of the table of arguments, by area."""

from __future__ import annotations

from tests.misuse.arguments import extended, losses, replicas, running, strategies, variables

AREAS = (extended, losses, replicas, running, strategies, variables)

"""Tests of profiling record with a recorder of their own, too."""

from __future__ import annotations

from tests.recording.conftest import recorder

__all__ = ["recorder"]

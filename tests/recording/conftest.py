"""A recorder of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from distlab.events import sink
from distlab.recording import RingRecorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[RingRecorder]:
    """A new recorder, in force for the test; JAX's devices have started."""
    jax.devices()
    made = RingRecorder()
    monkeypatch.setattr(sink, "_recorder", made)
    yield made
    made.metrics.flush()
    made.watcher.flush()

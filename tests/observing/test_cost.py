"""The microseconds that an observed call takes beside the call itself."""

from __future__ import annotations

from typing import Any

from tests.bench import observed
from tests.patience import measured


@measured
def test_an_observed_call_costs_microseconds(recorder: Any) -> None:
    assert recorder.enabled
    for leaves, limit in observed.LIMITS_US.items():
        assert observed.added_us(leaves) <= limit

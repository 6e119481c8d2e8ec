"""Scheduled functions that fetch results, of which a worker that waits may never get one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from distlab.coordinator import ClusterCoordinator
from distlab.errors import ContextError
from tests.misuse.world import has_remedy
from tests.patience import LIMIT_SECONDS
from tests.strategies.parameter_servers import strategy_of

pytestmark = pytest.mark.timeout(240)  # no misuse may hang


def test_a_scheduled_function_fetches_only_ready_results() -> None:
    coordinator = ClusterCoordinator(strategy_of(1, workers=1))
    result = coordinator.schedule(abs, (-3,))
    assert coordinator.schedule(lambda: result.fetch() + 1).fetch() == 4
    own: list[Any] = []
    there = threading.Event()

    def fetch_own() -> Any:
        assert there.wait(LIMIT_SECONDS)
        return own[0].fetch()

    def fetch_other() -> Any:
        return coordinator.schedule(abs, (-1,)).get()

    for function in (fetch_own, fetch_other):
        own[:] = [coordinator.schedule(function)]
        there.set()
        with pytest.raises(ContextError, match="waits for the result of another one") as raised:
            own[0].fetch()
        assert has_remedy(str(raised.value))
        with pytest.raises(ContextError):
            coordinator.join()
    assert coordinator.schedule(abs, (-2,)).fetch() == 2

"""Scheduled functions that fetch the results of others, which may wait for them."""

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


def coordinator_of(workers: int) -> ClusterCoordinator:
    return ClusterCoordinator(strategy_of(1, workers=workers))


def require_works(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(ContextError):
        coordinator.join()
    assert coordinator.schedule(abs, (-2,)).fetch() == 2


def test_a_function_that_fetches_another_needs_a_worker_for_it() -> None:
    coordinator = coordinator_of(1)
    for fetch in ("fetch", "get"):
        result = coordinator.schedule(lambda fetch=fetch: _scheduled(coordinator, fetch))
        with pytest.raises(ContextError, match=r"no worker is left to run: 1 of 1 wait") as told:
            result.fetch()
        assert has_remedy(str(told.value))
        require_works(coordinator)


def _scheduled(coordinator: ClusterCoordinator, fetch: str) -> Any:
    return getattr(coordinator.schedule(abs, (-1,)), fetch)()


def test_a_result_that_is_there_can_be_fetched_by_the_only_worker() -> None:
    coordinator = coordinator_of(1)
    result = coordinator.schedule(abs, (-3,))
    assert coordinator.schedule(lambda: result.fetch() + 1).fetch() == 4


def test_another_worker_may_run_what_a_function_fetches() -> None:
    coordinator = coordinator_of(2)
    outer = coordinator.schedule(lambda: coordinator.schedule(abs, (-1,)).fetch() + 1)
    assert outer.fetch() == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_function_that_fetches_its_own_result_is_refused(workers: int) -> None:
    coordinator = coordinator_of(workers)
    own: list[Any] = []
    there = threading.Event()

    def fetch_own() -> Any:
        assert there.wait(LIMIT_SECONDS)
        return own[0].fetch()

    own.append(coordinator.schedule(fetch_own))
    there.set()
    with pytest.raises(ContextError, match=r"waits for its own result.* call fetch outside"):
        own[0].fetch()
    require_works(coordinator)


def test_functions_that_fetch_each_other_are_refused() -> None:
    coordinator = coordinator_of(3)
    results: list[Any] = []
    there = threading.Event()

    def fetch(number: int) -> Any:
        assert there.wait(LIMIT_SECONDS)
        return results[number].fetch()

    results += [coordinator.schedule(fetch, (1,)), coordinator.schedule(fetch, (0,))]
    there.set()
    for result in results:
        with pytest.raises(ContextError, match="function that waits for it"):
            result.fetch()
    require_works(coordinator)


def test_when_all_workers_wait_the_last_one_says_so() -> None:
    coordinator = coordinator_of(2)
    both = threading.Barrier(2)

    def fetch() -> Any:
        both.wait(LIMIT_SECONDS)
        return coordinator.schedule(abs, (-5,)).fetch()

    results = [coordinator.schedule(fetch) for _ in range(2)]
    ends: list[Any] = []
    for result in results:
        try:
            ends.append(result.fetch())
        except ContextError as error:
            ends.append(error)
    told = [end for end in ends if isinstance(end, ContextError)]
    assert len(told) == 1
    assert "no worker is left to run: 2 of 2 wait" in str(told[0])
    assert 5 in ends
    require_works(coordinator)

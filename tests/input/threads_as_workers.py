"""Workers that are threads, with a key-value store in memory: agreement without processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

from distlab.errors import WorkerError
from distlab.processes.group import ProcessGroup, Worker

LIMIT_SECONDS = 60.0
Result = TypeVar("Result")


class Store:
    """A key-value store."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, text: str, *, overwrite: bool = False) -> None:
        with self._changed:
            assert overwrite or key not in self.texts
            self.texts[key] = text
            self._changed.notify_all()

    def awaited(self, key: str, timeout: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self.texts, timeout)
            return self.texts.get(key)

    def find(self, key: str) -> str | None:
        return self.texts.get(key)

    def delete(self, key: str) -> None:
        with self._changed:
            self.texts.pop(key, None)


class Threads:
    """What a `ProcessGroup` is to the input, for one of several threads."""

    def __init__(self, index: int, workers: tuple[Worker, ...], store: Store) -> None:
        self.index, self.workers, self.kv = index, workers, store
        self.timeout: float | None = LIMIT_SECONDS
        self.failure: WorkerError | None = None
        self.left: set[Worker] = set()
        self._calls: Counter[str] = Counter()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def has_left(self, worker: Worker) -> bool:
        return worker in self.left

    until, awaited, lost = ProcessGroup.until, ProcessGroup.awaited, ProcessGroup.lost

    def next_number(self, name: str) -> int:
        self._calls[name] += 1
        return self._calls[name] - 1

    def exchange(self, name: str, text: str, timeout: float = LIMIT_SECONDS) -> list[str]:
        place = f"exchange/{name}/{self.next_number(name)}/"
        self.kv.set(f"{place}{self.index}", text)
        found = [self.kv.awaited(f"{place}{n}", timeout) for n in range(len(self.workers))]
        assert None not in found
        return cast("list[str]", found)


def groups(count: int, store: Store | None = None) -> list[ProcessGroup]:
    """Returns the group as each of several threads sees it."""
    workers = tuple(Worker(n, f"worker:{n}", "host", n, 1) for n in range(count))
    shared = Store() if store is None else store
    return [cast(ProcessGroup, Threads(n, workers, shared)) for n in range(count)]


def as_threads(group: ProcessGroup) -> Threads:
    """Returns a member of `groups` as what it is."""
    return cast(Threads, group)


def on_all(functions: list[Callable[[], Result]]) -> list[Result | Exception]:
    """Calls each function in a thread of its own; returns results, or what was raised."""
    results: list[Any] = [None] * len(functions)

    def call(number: int) -> None:
        try:
            results[number] = functions[number]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[number] = error

    threads = [
        threading.Thread(target=call, args=(number,), daemon=True)
        for number in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LIMIT_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        assert not thread.is_alive(), "a worker waits for another"
    return results

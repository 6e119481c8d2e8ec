"""How fast a coordinator is: what each peer of `tests.bench.coordinator` does. No packages."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

WORKERS: Final = 2
SERVERS: Final = 2
FLOATS_OF_MB: Final = 262_144
VARIABLES: Final = 100
FLOATS_OF_VARIABLE: Final = 1_000
TASKS: Final = {
    "trivial": "trivial closures",
    "argument": "closures with an argument of 1 MB",
    "scalar": "closures that add to a scalar",
    "variables": "closures that read and update 100 variables of 4 KB",
}
LEAST: Final = 50
"""Closures that tell how many fill a measurement."""


def serve(coordinator: Any, tasks: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """Measures what standard input asks for, until it ends."""

    def seconds_of(task: str, count: int) -> float:
        function, args = tasks[task]
        begin = time.perf_counter()
        for _ in range(count):
            coordinator.schedule(function, args=args)
        coordinator.join()
        return time.perf_counter() - begin

    for task in tasks:
        seconds_of(task, LEAST)  # each worker has compiled it
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        task, seconds = json.loads(line)
        count = max(LEAST, int(seconds * LEAST / seconds_of(task, LEAST)))
        print(json.dumps(count / seconds_of(task, count)), flush=True)

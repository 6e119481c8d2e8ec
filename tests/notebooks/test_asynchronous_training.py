"""The notebook about asynchronous training: a worker is killed, and then a server."""

from __future__ import annotations

import re
from typing import Any

from tests.notebooks.executed import text_of

NAME = "10_asynchronous_training"
STEPS = 200


def steps_told(notebook: Any, cell_id: str) -> list[int]:
    """How many steps each worker took in a cell."""
    return [int(n) for n in re.findall(r"worker \d: (\d+) steps", text_of(notebook, cell_id))]


def numbers(notebook: Any, cell_id: str, words: str) -> list[float]:
    """The numbers in the words of a cell, such as `"(\\d+) updates"`."""
    (found,) = re.findall(words, text_of(notebook, cell_id))
    return [float(number) for number in ([found] if isinstance(found, str) else found)]


def test_a_large_variable_is_divided_over_the_servers(executed: Any) -> None:
    assert text_of(executed, "variables").splitlines() == [
        "weights/part_0: shape (32, 10), on server 0",
        "weights/part_1: shape (32, 10), on server 1",
        "bias: shape (10,), on server 0",
        "updates: shape (), on server 1",
    ]
    shown = text_of(executed, "placement")
    assert re.findall(r"server \d", shown) == ["server 0", "server 1"]


def test_two_workers_share_the_steps_and_the_model_learns(executed: Any) -> None:
    shown = text_of(executed, "train")
    assert shown.startswith("RemoteValue(pending)\nRemoteValue(ready)\n")
    assert sum(steps_told(executed, "train")) == STEPS
    updates, accuracy = numbers(executed, "train", r"(\d+) updates, test accuracy (\d\.\d+)")
    assert updates == STEPS
    assert accuracy > 0.85
    assert sum(steps_told(executed, "stale")) == STEPS


def test_a_killed_worker_loses_no_step(executed: Any) -> None:
    assert sum(steps_told(executed, "dies")) == STEPS
    functions, updates = numbers(executed, "dies", r"(\d+) functions, (\d+) updates")
    assert functions == STEPS
    assert updates in (STEPS, STEPS + 1)
    killed, now = numbers(executed, "back", r"was process (\d+), and is now (\d+)")
    assert killed != now


def test_variables_of_a_lost_server_are_restored_elsewhere(
    executed: Any,
) -> None:
    said = text_of(executed, "server")
    assert re.search(r"Raised in the coordinator: Parameter server 1 at \S+ is gone", said)
    saved = numbers(executed, "save", r"saved after (\d+) updates, test accuracy (\d\.\d+)")
    restored = numbers(executed, "restore", r"restored (\d+) updates, test accuracy (\d\.\d+)")
    assert restored == saved
    assert steps_told(executed, "on") == [100]
    assert numbers(executed, "on", r"(\d+) updates, test")[0] == saved[0] + 100

"""Lost and returned tasks are told once each, with the reason that was known in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import distlab as dl
from distlab.coordinator._task_log import TaskLog
from distlab.events import TaskState

STRATEGY = 4711
LOST = ("worker", 1, "lost")


def told(folder: Path) -> list[tuple[str, int, str, str]]:
    with dl.Run.open(folder) as run:
        events = [event for event in run.events("task") if isinstance(event, TaskState)]
    return [
        (event.job, event.task, event.state, event.reason)
        for event in events
        if event.strategy == STRATEGY
    ]


def settled(log: TaskLog) -> None:
    log.settle(1, "process ended by SIGKILL", server=False)
    log.settle(1, "another reason", server=False)


def returned_first(log: TaskLog) -> None:
    log.returned(1, server=False)
    log.settle(1, "too late", server=False)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (settled, [(*LOST, "process ended by SIGKILL")]),
        (lambda log: log.settle(1, "", server=False), [(*LOST, "connection closed")]),
        (lambda log: log.settle(1, "of another", server=True), [(*LOST, "connection closed")]),
        (lambda _: None, [(*LOST, "connection closed")]),
        (returned_first, [(*LOST, "connection closed"), ("worker", 1, "returned", "")]),
    ],
)
def test_a_loss_is_told_once(
    tmp_path: Path, then: Callable[[TaskLog], None], expected: list[tuple[str, int, str, str]]
) -> None:
    log = TaskLog(STRATEGY)
    with dl.record(tmp_path / "run", probe=False):
        log.lost(1, "connection closed", server=False)
        then(log)
    assert told(tmp_path / "run") == expected

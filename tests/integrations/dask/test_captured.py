"""What a function does to the containers that it refers to is found out in its process."""

from __future__ import annotations

from typing import Any

from distlab.integrations.dask.captured import CapturedContainers, Changes, outer_names_assigned


def changes(fn: Any, *args: Any) -> Changes:
    captured = CapturedContainers(fn)
    captured.remember()
    fn(*args)
    return captured.changes()


def test_what_is_appended_is_taken_out_and_can_be_appended_elsewhere() -> None:
    losses: list[float] = [1.0]

    def step(x: float) -> None:
        losses.append(x)

    assert changes(step, 2.0) == ({0: [2.0]}, [])
    assert losses == [1.0]
    CapturedContainers(step).extend({0: [2.0]})
    assert losses == [1.0, 2.0]


def test_lists_inside_of_other_functions_and_containers_are_found() -> None:
    history: dict[str, list[int]] = {"loss": []}
    inner: list[int] = []

    def log(x: int) -> None:
        inner.append(x)
        history["loss"].append(x)

    found = changes(lambda: log(3))
    assert sorted(found.appended.values()) == [[3], [3]]
    assert not found.others


def test_other_changes_are_told() -> None:
    seen: dict[str, int] = {"n": 0}
    order = [1, 2]

    def count() -> None:
        seen["n"] += 1

    def sort() -> None:
        order.reverse()

    assert changes(count) == ({}, ["a dict"])
    assert changes(sort) == ({}, ["a list"])
    assert changes(lambda: seen["n"] + order[0]) == ({}, [])


total = 0


def test_outer_names_that_a_function_assigns_are_named() -> None:
    steps = 0

    def outside() -> None:
        global total
        nonlocal steps
        total, steps = 1, 1

    def inside() -> int:
        own = 1

        def change() -> None:
            nonlocal own
            own += 1

        change()
        return own + steps

    assert outer_names_assigned(outside) == ["steps", "total"]
    assert outer_names_assigned(inside) == []
    assert outer_names_assigned(len) == []

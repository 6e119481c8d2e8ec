"""The lists that a function refers to, whose new elements travel between processes."""

from __future__ import annotations

import functools
from typing import Any

from distlab.integrations.dask.closures import Appended, CapturedLists

history: list[int] = []


def appended(fn: Any, *args: Any) -> Appended:
    captured = CapturedLists(fn)
    captured.remember()
    fn(*args)
    return captured.appended()


def test_lists_in_functions_globals_and_containers_are_found() -> None:
    nested: dict[str, list[int]] = {"loss": []}
    inner: list[int] = []

    def log(into: list[int], x: int) -> None:
        into.append(x)
        nested["loss"].append(x)
        history.append(x)

    found = appended(lambda: functools.partial(log, inner)(3))
    assert sorted(found.values()) == [[3], [3], [3]]
    assert not history

"""Dask's workers as tasks of a cluster."""

from __future__ import annotations

import pytest

from distlab.errors import ClusterError
from distlab.integrations.dask.resolver import names_in_order


def test_workers_named_after_tasks_are_these() -> None:
    names = names_in_order(["ps-0", "worker-1", "worker-0"], 2, 1)
    assert names == ["worker-0", "worker-1", "ps-0"]


def test_other_names_are_tasks_in_order() -> None:
    assert names_in_order([10, 2, 0], 2, 1) == [0, 2, 10]


def test_too_few_workers_are_named() -> None:
    with pytest.raises(ClusterError, match=r"2 workers and 1 parameter servers.*has 1 workers"):
        names_in_order(["only"], 2, 1)

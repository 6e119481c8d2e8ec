"""Values of several replicas where one array is needed say themselves what they are."""

from __future__ import annotations

from typing import Any

import pytest

import distlab as dl


def _ids(strategy: dl.Strategy) -> Any:
    return strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + 1.0)


@pytest.mark.parametrize("name", ["numpy", "tolist", "shape"])
def test_an_attribute_of_arrays_is_told_why_there_is_none(name: str) -> None:
    ids = _ids(dl.MirroredStrategy(["CPU:0", "CPU:1"]))
    with pytest.raises(AttributeError, match=rf"so it has no '{name}', .*experimental_local_re"):
        getattr(ids, name)
    assert not hasattr(ids, name)
    with pytest.raises(AttributeError, match=r"Mirrored\(float.*read it with float\(value\)"):
        getattr(dl.Mirrored(ids.values[0]), name)

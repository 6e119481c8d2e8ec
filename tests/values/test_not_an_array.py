"""Values of several replicas where one array is needed say themselves what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distlab as dl
from distlab.errors import ValueShapeError


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


VERBS: dict[str, Callable[[dl.Strategy, Any], object]] = {
    "all_reduce": lambda s, ids: s.run(lambda: dl.get_replica_context().all_reduce("SUM", ids)),
    "all_gather": lambda s, ids: s.run(lambda: dl.get_replica_context().all_gather(ids, 0)),
    "v": lambda _, ids: dl.Variable(ids, name="v"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_of_one_array_tell_it_in_their_own_name(verb: str) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    says = (
        rf"^{verb}: PerReplica\(2 x float32\[\]\) has a value for each replica, .*Pass it in args"
    )
    with pytest.raises(ValueShapeError, match=says) as refused:
        VERBS[verb](strategy, _ids(strategy))
    assert "JAX says" not in str(refused.value)

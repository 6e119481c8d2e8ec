"""Nests: tf.nest's names and meaning, with distributed values and variables as leaves."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import StructureError, ValueShapeError


class Point(NamedTuple):
    """A named tuple."""

    y: Any
    x: Any


@flax.struct.dataclass
class State:
    """A class that JAX knows as a pytree."""

    step: Any
    params: Any


LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.none())
NESTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Point, inner, inner),
        st.builds(State, inner, inner),
    ),
    max_leaves=12,
)


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])


@pytest.mark.slow
@given(NESTS)
def test_a_nest_survives_flattening_and_packing(nest: Any) -> None:
    flat = dl.nest.flatten(nest)
    assert not any(map(dl.nest.is_nested, flat))
    assert dl.nest.pack_sequence_as(nest, flat) == nest
    dl.nest.assert_same_structure(nest, dl.nest.pack_sequence_as(nest, list(range(len(flat)))))


@given(NESTS)
def test_a_mapped_nest_keeps_structure_and_order(nest: Any) -> None:
    boxed = dl.nest.map_structure(Box, nest)
    assert [box.value for box in dl.nest.flatten(boxed)] == dl.nest.flatten(nest)
    assert dl.nest.map_structure(lambda box, leaf: (box.value, leaf)[1], boxed, nest) == nest


class Box:
    """A leaf that equals only itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


def test_mappings_are_flattened_by_key_and_keep_their_type() -> None:
    ordered = collections.OrderedDict([("b", 1), ("a", (2, None))])
    counts: Any = collections.defaultdict(list)
    counts["z"] = 3
    assert dl.nest.flatten([ordered, counts]) == [2, None, 1, 3]
    mapped = dl.nest.map_structure(lambda v: v and v * 10, [ordered, counts])
    assert list(mapped[0].items()) == [("b", 10), ("a", (20, None))]
    assert mapped[1].default_factory is list
    assert mapped[1] == {"z": 30}


def test_map_structure_stops_at_distributed_values_and_variables() -> None:
    s = _strategy()
    with s.scope():
        v = dl.Variable(jnp.arange(3.0))
    results = s.run(
        lambda: {"a": [jnp.float32(dl.get_replica_context().replica_id_in_sync_group) + 1.0]}
    )
    seen: list[Any] = []
    dl.nest.map_structure(seen.append, {"r": results, "v": v})
    assert seen[0] is results["a"][0]
    assert seen[1] is v
    means = dl.nest.map_structure(lambda r: float(s.reduce("MEAN", r, axis=None)), results)
    assert means == {"a": [2.0]}


def test_composites_are_expanded_and_put_together_again() -> None:
    s = _strategy()
    ids = s.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
    ragged = s.experimental_distribute_values_from_function(
        lambda c: jnp.arange(c.replica_id_in_sync_group)
    )
    mirrored = dl.Mirrored(jax.device_put(jnp.float32(2), s.mesh.whole))
    nest = {"ids": ids, "mirrored": mirrored, "ragged": ragged}
    flat = dl.nest.flatten(nest, expand_composites=True)
    assert [np.asarray(leaf).tolist() for leaf in flat] == [0, 1, 2, 2, 2, 2, [], [0], [0, 1]]
    doubled = dl.nest.map_structure(lambda v: 2 * v, nest, expand_composites=True)
    assert [int(v) for v in s.experimental_local_results(doubled["ids"])] == [0, 2, 4]
    assert isinstance(doubled["mirrored"], dl.Mirrored)
    assert [v.tolist() for v in doubled["ragged"].values] == [[], [0], [0, 2]]
    assert [v.device for v in doubled["ids"].values] == jax.devices()[:3]


def test_a_registered_class_is_a_nest_whose_static_parts_stay() -> None:
    layer = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    mapped = dl.nest.map_structure(jnp.zeros_like, layer)
    assert (mapped.in_features, mapped.out_features) == (2, 3)
    assert not np.any(mapped.weight)
    assert dl.nest.flatten(State(1, {"w": 2})) == [1, 2]


def test_different_structures_are_told_apart_with_their_place() -> None:
    for one, other, message in [
        ([1, 2], [1], "structures differ"),
        ([1, [2]], [1, 2], r"at \[1\].*leaf 2"),
        ({"a": 1}, {"b": 1}, r"\['a'\].*\['b'\]"),
        (1, [1], "leaf 1"),
        ({"k": (1, 2)}, {"k": (1, 2, 3)}, r"at \['k'\]"),
    ]:
        with pytest.raises(ValueShapeError, match=message):
            dl.nest.assert_same_structure(one, other)
        with pytest.raises(ValueError, match=message):
            dl.nest.map_structure(lambda *_: None, one, other)


def test_types_must_agree_unless_they_are_not_checked() -> None:
    with pytest.raises(StructureError, match=r"list and tuple.*check_types=False"):
        dl.nest.assert_same_structure([1], (1,))
    dl.nest.assert_same_structure([1], (1,), check_types=False)
    assert dl.nest.map_structure(lambda a, b: a + b, [1], (2,), check_types=False) == [3]
    dl.nest.assert_same_structure({"a": 1}, collections.OrderedDict(a=2))


def test_wrong_arguments_name_the_remedy() -> None:
    with pytest.raises(ValueShapeError, match="2 leaves and flat_sequence 1"):
        dl.nest.pack_sequence_as([0, 0], [1])

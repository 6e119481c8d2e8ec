"""What is remembered of Flax NNX objects is never out of date, and keeps nothing alive."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.integrations.flax.objects import NnxObjects
from distlab.integrations.flax.outlines import Outline, Outlines
from distlab.step.arguments import in_use
from distlab.step.arguments.in_use import Use


class Pair(NamedTuple):
    left: Any
    right: Any


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(2, 2, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.act: Any = jnp.tanh
        self.sizes = (2, (3, "a"))
        self.parts: Any = nnx.List([nnx.Param(jnp.zeros(1)), nnx.Linear(1, 1, rngs=rngs)])
        self.shared = self.linear.bias

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.drop(self.act(self.linear(x)))


def made() -> list[Any]:
    model = Block(nnx.Rngs(0, dropout=1))
    return [model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param), nnx.metrics.Average()]


def split(library: NnxObjects, objects: list[Any]) -> Any:
    use = Use()
    try:
        return library.split(objects, use)
    finally:
        in_use.present.pop(use, None)


def served(library: NnxObjects, objects: list[Any]) -> Any:
    """Splits objects until what they consist of is remembered, as long as the result lives."""
    structures = [split(library, objects)[0] for _ in range(3)]
    assert library.remembers(objects)
    assert structures[0] is structures[1] is structures[2]
    return structures[0]


def require_right(library: NnxObjects, objects: list[Any]) -> Any:
    """Returns the structure of a split, which must be that of one without any memory."""
    structure, arrays, _ = split(library, objects)
    fresh, expected, _ = split(NnxObjects(), objects)
    assert structure == fresh
    assert hash(structure) == hash(fresh)
    assert len(arrays) == len(expected)
    assert all(one is other for one, other in zip(arrays, expected, strict=True))
    return structure


def add_attribute(objects: list[Any]) -> None:
    objects[0].linear.extra = 3


def add_variable(objects: list[Any]) -> None:
    objects[0].linear.extra = nnx.Param(jnp.zeros(1))


def delete_attribute(objects: list[Any]) -> None:
    del objects[0].linear.bias


def rename_attribute(objects: list[Any]) -> None:
    objects[0].linear.offset = objects[0].linear.bias
    del objects[0].linear.bias


def replace_layer(objects: list[Any]) -> None:
    objects[0].linear = nnx.Linear(2, 2, use_bias=False, rngs=nnx.Rngs(1))


def replace_layer_by_an_equal_one(objects: list[Any]) -> None:
    objects[0].linear = nnx.Linear(2, 2, rngs=nnx.Rngs(1))


def swap_variable(objects: list[Any]) -> None:
    objects[0].parts[0] = nnx.Param(jnp.ones(1))


def swap_variable_for_another_kind(objects: list[Any]) -> None:
    objects[0].parts[0] = nnx.BatchStat(jnp.ones(1))


def share_more(objects: list[Any]) -> None:
    objects[0].parts[0] = objects[0].linear.bias


def share_less(objects: list[Any]) -> None:
    objects[0].shared = nnx.Param(jnp.zeros(2))


def evaluate(objects: list[Any]) -> None:
    objects[0].eval()


def replace_function(objects: list[Any]) -> None:
    objects[0].act = jnp.sin


def replace_number(objects: list[Any]) -> None:
    objects[0].drop.rate = 0.25


def replace_sizes(objects: list[Any]) -> None:
    objects[0].sizes = (2, (3, "b"))


def replace_optimizer(objects: list[Any]) -> None:
    objects[1].tx = optax.sgd(0.1)


def replace_state_of_optimizer(objects: list[Any]) -> None:
    state = objects[1].opt_state
    objects[1].opt_state = nnx.data((*state, Pair(nnx.Variable(jnp.zeros(1)), ())))


def set_metadata(objects: list[Any]) -> None:
    objects[0].linear.kernel.set_metadata("tag", "new")


def change_metadata(objects: list[Any]) -> None:
    objects[0].drop.rngs.count.set_metadata("tag", "other")


def delete_metadata(objects: list[Any]) -> None:
    objects[0].drop.rngs.count.del_metadata("tag")


def append_to_a_list(objects: list[Any]) -> None:
    objects[0].parts.append(nnx.Param(jnp.zeros(1)))


def pop_from_a_list(objects: list[Any]) -> None:
    objects[0].parts.pop()


def hold_a_pair_in_a_variable(objects: list[Any]) -> None:
    objects[0].parts[0].set_raw_value((jnp.zeros(1), jnp.ones(1)))


def hold_nothing_in_a_variable(objects: list[Any]) -> None:
    objects[0].parts[0].set_raw_value(None)


def hold_another_shape(objects: list[Any]) -> None:
    objects[0].linear.kernel.set_raw_value(jnp.zeros((5, 5)))


def hold_an_array_of_numpy(objects: list[Any]) -> None:
    objects[0].linear.kernel.set_raw_value(np.zeros((2, 2), np.float32))


def make_it_another_class(objects: list[Any]) -> None:
    class Other(Block):
        pass

    objects[0].__class__ = Other


CHANGES: list[Callable[[list[Any]], None]] = [
    *(add_attribute, add_variable, delete_attribute, rename_attribute, replace_layer),
    *(replace_layer_by_an_equal_one, swap_variable, swap_variable_for_another_kind, share_more),
    *(share_less, evaluate, replace_function, replace_number, replace_sizes, replace_optimizer),
    *(replace_state_of_optimizer, set_metadata, change_metadata, delete_metadata),
    *(append_to_a_list, pop_from_a_list, hold_a_pair_in_a_variable, hold_nothing_in_a_variable),
    *(hold_another_shape, hold_an_array_of_numpy, make_it_another_class),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_of_what_objects_consist_of_is_seen(change: Any) -> None:
    library, objects = NnxObjects(), made()
    kept = [served(library, objects)]
    change(objects)
    # With what was remembered before, and with what is remembered anew.
    kept += [require_right(library, objects) for _ in range(4)]


def test_an_address_that_another_function_takes_over_is_no_match() -> None:
    """Functions that live one after the other often have the same address."""
    model = Block(nnx.Rngs(0))
    variables = [one for _, one in nnx.iter_graph(model) if isinstance(one, nnx.Variable)]
    for number in range(20):
        model.act = functools.partial(jnp.multiply, number)
        outline = Outline([model], variables)
        assert outline.variables([model]) is not None
        model.act = None
        model.act = functools.partial(jnp.multiply, number + 1)
        assert outline.variables([model]) is None


def test_a_static_value_that_changes_its_hash_is_seen() -> None:
    class Rule:
        def __init__(self) -> None:
            self.size = 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Rule) and self.size == other.size

        def __hash__(self) -> int:
            return hash(self.size)

    library, objects = NnxObjects(), made()
    objects[0].act = rule = Rule()
    before = served(library, objects)
    rule.size = 2
    assert hash(require_right(library, objects)) != hash(before)


def test_new_arrays_are_read_and_written_without_a_split() -> None:
    library, objects = NnxObjects(), made()
    structure = served(library, objects)
    objects[0].linear.kernel[...] = jnp.full((2, 2), 7.0)
    _, arrays, update = split(library, objects)
    assert library.remembers(objects)
    assert split(library, objects)[0] is structure
    assert any(array is objects[0].linear.kernel.get_raw_value() for array in arrays)
    update([array + 1 if array.dtype == jnp.float32 else array for array in arrays])
    np.testing.assert_array_equal(objects[0].linear.kernel[...], np.full((2, 2), 8.0))
    assert objects[0].shared is objects[0].linear.bias
    np.testing.assert_array_equal(objects[0].shared[...], [1.0, 1.0])
    require_right(library, objects)


def test_objects_that_come_once_are_not_outlined() -> None:
    library, objects = NnxObjects(), made()
    structure = split(library, objects)[0]
    assert not library.remembers(objects)
    assert structure is split(library, objects)[0]
    assert library.remembers(objects)


def test_objects_that_change_with_each_call_are_outlined_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from distlab.integrations.flax import outlines

    made_of: list[Any] = []
    outline = outlines.Outline

    def counted(*args: Any) -> Any:
        made_of.append(args)
        return outline(*args)

    monkeypatch.setattr(outlines, "Outline", counted)
    library = NnxObjects()
    objects: list[Any] = [nnx.Linear(1, 1, rngs=nnx.Rngs(0))]
    for number in range(64):
        objects[0].extra = number + 1000
        split(library, objects)
    assert len(made_of) == 6  # after 2, 4, 8, 16, 32 and 64 calls


@pytest.mark.parametrize("held", ["closure", "method", "metadata"])
def test_nothing_that_is_remembered_keeps_objects_alive(held: str) -> None:
    library, objects = NnxObjects(), made()
    model = objects[0]
    if held == "closure":
        model.act = functools.partial(lambda owner, x: x * owner.drop.rate, model)
    elif held == "method":
        model.act = model.linear.set_attributes
    else:
        model.linear.kernel.set_metadata("owner", model.set_attributes)
    served(library, objects)
    gone = [weakref.ref(one) for one in objects]
    array = weakref.ref(model.linear.kernel.get_raw_value())
    del model, objects
    gc.collect()
    assert [one() for one in gone] == [None, None, None]
    assert array() is None


def test_only_the_last_groups_of_objects_are_remembered() -> None:
    outlines: Outlines[Any] = Outlines()
    library = NnxObjects()
    groups = [[nnx.Variable(jnp.zeros(()))] for _ in range(300)]
    kept = []
    for _ in range(2):
        for group in groups[:200]:
            structure, arrays, _ = split(library, group)
            kept.append(structure)
            outlines.note(group, structure, arrays)
    assert outlines.find(groups[0]) is not None
    for group in groups[200:]:
        structure, arrays, _ = split(library, group)
        outlines.note(group, structure, arrays)
    assert outlines.find(groups[0]) is None
    assert outlines.find(groups[199]) is not None


# Random objects, changed at random, are always what a split without memory says.

LEAVES: list[Callable[[], Any]] = [
    lambda: nnx.Param(jnp.zeros(1)),
    lambda: nnx.BatchStat(jnp.zeros(1)),
    lambda: nnx.Param(jnp.zeros(1), tag="a"),
    lambda: nnx.RngStream(jax.random.key(0), tag="t"),
]
STATIC: list[Any] = [1, 2.5, "word", None, True, jnp.float32, jnp.tanh, (1, 2), Pair]


class Node(nnx.Module, pytree=False):
    pass


class Tree(nnx.Module):
    pass


Place = tuple[Any, str]


def places(root: Any) -> list[Place]:
    """Returns the attributes of all modules below a root."""
    modules = [one for _, one in nnx.iter_graph(root) if isinstance(one, Node | Tree)]
    return [
        (one, name) for one in modules for name in sorted(vars(one)) if not name.startswith("_")
    ]


@st.composite
def modules(draw: Any, depth: int = 2) -> Any:
    one: Any = draw(st.sampled_from([Node, Tree]))()
    values: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 5))
        if kind == 0 and values:
            value = draw(st.sampled_from(values))  # shared
        elif kind == 1 and depth:
            value = draw(modules(depth - 1))
        elif kind == 2:
            value = nnx.List([made() for made in draw(st.lists(st.sampled_from(LEAVES)))])
        elif kind == 3:
            setattr(one, f"static{number}", draw(st.sampled_from(STATIC)))
            continue
        elif kind == 4:
            value = Pair(*(made() for made in draw(st.tuples(*[st.sampled_from(LEAVES)] * 2))))
        else:
            value = draw(st.sampled_from(LEAVES))()
        values.append(value)
        setattr(one, f"value{number}", nnx.data(value) if isinstance(one, Tree) else value)
    return one


def changed(draw: Any, roots: list[Any]) -> None:
    found = places(draw(st.sampled_from(roots)))
    change = draw(st.integers(0, 5))
    if change == 0 or not found:
        setattr(roots[0], f"new{draw(st.integers(0, 2))}", draw(st.sampled_from(STATIC)))
        return
    one, name = draw(st.sampled_from(found))
    value = getattr(one, name)
    is_data = name.startswith("value")
    if change == 1:
        delattr(one, name)
    elif change == 2 and is_data:
        new = draw(st.sampled_from(LEAVES))()
        setattr(one, name, nnx.data(new) if isinstance(one, Tree) else new)
    elif change == 3 and is_data:
        other, at = draw(st.sampled_from(found))
        if at.startswith("value") and isinstance(getattr(other, at), nnx.Variable):
            new = getattr(other, at)
            setattr(one, name, nnx.data(new) if isinstance(one, Tree) else new)
    elif change == 4 and isinstance(value, nnx.Variable):
        value.set_metadata("tag", draw(st.sampled_from(["a", "b", 1, None])))
    elif change == 5 and isinstance(value, nnx.Variable):
        value.set_raw_value(jnp.ones(draw(st.integers(1, 3))))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_objects_and_changes(data: Any) -> None:
    library = NnxObjects()
    kept: list[Any] = []
    roots = data.draw(st.lists(modules(), min_size=1, max_size=2))
    for _ in range(data.draw(st.integers(1, 6))):
        kept += [require_right(library, roots) for _ in range(data.draw(st.integers(1, 3)))]
        changed(data.draw, roots)
    require_right(library, roots)


# The same by steps.

REPLICAS = 3


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


def double(model: Any, x: Any) -> None:
    total = dl.get_replica_context().all_reduce("SUM", jnp.sum(x))
    for _, part in nnx.iter_graph(model):
        if isinstance(part, nnx.Param):
            part[...] = part[...] * 2 + total


def test_steps_go_on_with_what_was_changed_between_them(strategy: dl.Strategy) -> None:
    """Ragged batches, a layer that is replaced, shared with another object, and dropped."""
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)), b=nnx.Param(jnp.ones(1)))
    other: Any = nnx.Dict(mine=model.a)
    sizes = [3, 3, 2, 4, 3, 1, 3]
    wanted = {"a": 1.0, "b": 1.0}
    for number, size in enumerate(sizes):
        (x,) = strategy.experimental_distribute_dataset(
            dl.data.Dataset.from_tensor_slices(np.ones(size, np.float32)).batch(size)
        )
        strategy.run(double, args=({"model": model, "other": other}, x))
        wanted = {name: value * 2 + size for name, value in wanted.items()}
        assert {name: float(model[name][0]) for name in wanted} == wanted
        assert other.mine is model.a or number > 4
        if number == 2:
            model.b = nnx.Param(jnp.full(1, 5.0))
            wanted["b"] = 5.0
        elif number == 3:
            model.c = model.a  # seen twice, doubled once
        elif number == 4:
            model.a = model.c = nnx.Param(jnp.zeros(1))
            wanted["a"] = 0.0


def test_an_error_in_a_step_leaves_remembered_objects_as_they_were(
    strategy: dl.Strategy, eager: bool
) -> None:
    del eager
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)), b=nnx.Param(jnp.ones(1)))

    def step(model: Any, fails: bool) -> None:
        model.a[...] *= 2
        if fails:
            raise RuntimeError("stop")
        model.b[...] *= 2

    for _ in range(3):
        strategy.run(step, args=(model, False))
    with pytest.raises(RuntimeError, match="stop"):
        strategy.run(step, args=(model, True))
    assert (float(model.a[0]), float(model.b[0])) == (8.0, 8.0)
    strategy.run(step, args=(model, False))
    assert (float(model.a[0]), float(model.b[0])) == (16.0, 16.0)


def test_one_model_under_two_strategies_and_alone(strategy: dl.Strategy) -> None:
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)))
    other = dl.MirroredStrategy(["CPU:5", "CPU:6"])
    for _ in range(3):
        strategy.run(double, args=(model, 1.0))
        other.run(double, args=(model, 1.0))
        dl.OneDeviceStrategy("CPU:1").run(double, args=(model, 1.0))
    wanted = 1.0
    for _ in range(3):
        for replicas in (REPLICAS, 2, 1):
            wanted = wanted * 2 + replicas
    assert float(model.a[0]) == wanted


def test_streams_of_replicas_differ_in_each_step(strategy: dl.Strategy) -> None:
    rngs = nnx.Rngs(0)
    rows = [strategy.run(lambda rngs: rngs.uniform(()), args=(rngs,)).values for _ in range(5)]
    assert len({float(number) for row in rows for number in row}) == 5 * REPLICAS
    assert int(rngs.default.count[...]) == 5


def test_a_model_that_steps_used_is_freed_with_its_step() -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")

    def used() -> weakref.ref[Any]:
        model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)))

        def step(model: Any) -> jax.Array:
            return model.a[...].sum()

        for _ in range(4):
            strategy.run(step, args=(model,))
        return weakref.ref(model)

    gone = used()
    gc.collect()
    assert gone() is None

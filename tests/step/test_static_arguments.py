"""Arguments of run that are no arrays: what they are compiled for, and what is refused."""

from __future__ import annotations

import argparse
import array
import contextvars
import ctypes
import dataclasses
import enum
import functools
import multiprocessing as mp
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from flax import linen, nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ArgumentTypeError, OptionError, RecompilationWarning
from distlab.step.functions.statics import static_key


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """Members are ints, too."""

    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Compared by value, with a hash."""

    rate: float = 0.5
    name: str = "sgd"


@dataclasses.dataclass
class Config:
    """Compared by value, without a hash."""

    rate: float = 0.5
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


class Plain:
    """Compared by identity."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _counted(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Returns a function, and a list with an element for each time that it is traced."""
    traces: list[int] = []

    @functools.wraps(fn)
    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return fn(*args, **kwargs)

    return counting, traces


@pytest.mark.usefixtures("eager")
def test_bools_strings_and_none_steer_python() -> None:
    s = _strategy()

    def step(x: jax.Array, training: bool, *, mode: str | None = None) -> Any:
        if training:
            x = x * 2
        return x + 1 if mode is None else x + len(mode)

    def of(*args: Any, **kwargs: Any) -> float:
        return float(s.run(step, args=args, kwargs=kwargs).values[0])

    assert (of(3.0, True), of(3.0, False)) == (7.0, 4.0)
    assert (of(3.0, True, mode="abc"), of(3.0, False, mode=None)) == (9.0, 4.0)
    x = s.replicate(np.float32(1))
    assert float(s.run(step, args=(x,), kwargs={"training": True}).values[1]) == 3.0


def test_a_value_is_compiled_once_and_numbers_stay_traced() -> None:
    s = _strategy()
    step, traces = _counted(lambda x, training: x * 2 if training else x)
    for training in (True, False, True, False, True):
        s.run(step, args=(1.0, training))
    assert len(traces) == 2
    step, traces = _counted(lambda x, n, f: x * n + f)
    results = [float(s.run(step, args=(1.0, n, n / 2)).values[0]) for n in range(5)]
    assert results == [1.5 * n for n in range(5)]
    assert len(traces) == 1


EQUAL: dict[str, Callable[[], Any]] = {
    "string": lambda: str(b"ab", "ascii"),
    "bytes": lambda: bytes([1, 2]),
    "enum": lambda: Colour.RED,
    "int enum": lambda: Level.LOW,
    "dtype": lambda: np.dtype("float32"),
    "scalar type": lambda: jnp.bfloat16,
    "path": lambda: Path("a/b"),
    "frozen dataclass": lambda: Frozen(0.25),
    "dataclass": lambda: Config(0.25),
    "namespace": lambda: SimpleNamespace(a=1, b=[2, {"c": 3}]),
    "arguments": lambda: argparse.Namespace(lr=0.1, layers=[1, 2]),
    "linen module": lambda: linen.Dense(3),
    "set": lambda: {1, 2},
    "function made anew": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(max, 3),
    "strings": lambda: np.array(["a", "bc"]),
    "class": lambda: Config,
    "module": lambda: jnp,
}


@pytest.mark.parametrize("kind", EQUAL)
def test_equal_objects_share_a_program(kind: str) -> None:
    s = _strategy()
    step, traces = _counted(lambda x, thing: x + (1 if thing is not None else 0))
    for _ in range(3):
        assert float(s.run(step, args=(1.0, EQUAL[kind]())).values[0]) == 2.0
    assert len(traces) == 1


def test_each_object_reaches_the_function_as_it_is() -> None:
    s = _strategy()
    seen: list[Any] = []
    things = [make() for make in EQUAL.values()]

    def step(x: Any, *rest: Any) -> Any:
        seen.extend(rest)
        return x

    s.run(step, args=(1.0, *things))
    assert all(a is b for a, b in zip(seen, things, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        (Colour.RED, Colour.BLUE),
        (Level.LOW, Level.HIGH),
        (True, False),
        (np.dtype("int32"), np.dtype("int64")),
        (Frozen(1.0), Frozen(2.0)),
        (Config(1.0), Config(2.0)),
        (Config(sizes=[1]), Config(sizes=[2])),
        (Plain(a=1), Plain(a=1)),
        (SimpleNamespace(a=True), SimpleNamespace(a=1)),
        (array.array("i", [1]), array.array("i", [2])),
        (bytearray(b"a"), bytearray(b"b")),
        ({1}, {2}),
        (lambda x: x + 1, lambda x: x + 2),
        (np.array(["a"]), np.array(["b"])),
        (linen.Dense(3), linen.Dense(4)),
        (float("nan"), 0.0),
        (0.0, -0.0),
    ],
)
def test_different_objects_have_programs_of_their_own(one: Any, other: Any) -> None:
    assert static_key(one) != static_key(other)
    assert static_key(one) == static_key(one)
    assert hash(static_key(one)) == hash(static_key(one))


VALUES = st.recursive(
    st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Config, inner, inner),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
@settings(max_examples=60, deadline=None)
def test_keys_of_contents_are_equal_when_the_texts_of_the_contents_are(a: Any, b: Any) -> None:
    one, other = (static_key(SimpleNamespace(held=v)) for v in (a, b))
    assert (one == other) == (repr(a) == repr(b))


def test_a_changed_attribute_is_noticed() -> None:
    s = _strategy()
    config: Any = Config(1.0)
    holder: Any = Plain(scale=jnp.float32(2), inner=Plain(bias=[1.0]))

    def step(x: Any, config: Config, holder: Any) -> Any:
        return x * config.rate * holder.scale + holder.inner.bias[0]

    def now() -> float:
        return float(s.run(step, args=(1.0, config, holder)).values[0])

    assert now() == 3.0
    config.rate = 2.0
    assert now() == 5.0
    holder.scale = jnp.float32(3)
    assert now() == 7.0
    holder.inner.bias[0] = 0.0
    assert now() == 6.0


class Node:
    """Equal where the number is, as rows of databases and nodes of graphs are."""

    def __init__(self, number: int, weight: float) -> None:
        self.number, self.weight = number, weight

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


@dataclasses.dataclass(frozen=True)
class Partly:
    """Compares its name alone; what it has computed is no part of it."""

    name: str
    weight: float = dataclasses.field(compare=False)
    computed: dict[str, int] = dataclasses.field(default_factory=dict, compare=False, init=False)


class Dense(linen.Module):
    """A module with a field that its equality leaves out."""

    weight: float = dataclasses.field(default=1.0, compare=False)

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return x * self.weight


def _held_partly() -> Any:
    return Plain(inner=Partly("held", 1.0))


def _renamed(holder: Any, weight: float) -> None:
    holder.inner = Partly("held", weight)


def _weight_of_3(thing: Any) -> None:
    thing.weight = 3.0


@pytest.mark.parametrize(
    ("made", "change", "read"),
    [
        (lambda: Node(1, 1.0), _weight_of_3, lambda o: o.weight),
        (lambda: [Node(1, 1.0)], lambda o: setattr(o[0], "weight", 3.0), lambda o: o[0].weight),
        (_held_partly, lambda o: _renamed(o, 3.0), lambda o: o.inner.weight),
        (lambda: np.array([1.0, "a"], object), lambda o: o.__setitem__(0, 3.0), lambda o: o[0]),
        (lambda: np.array(["1"] * 20_000), lambda o: o.__setitem__(0, "3"), lambda o: float(o[0])),
        (
            lambda: pd.DataFrame({"w": ["1", "2"]}, dtype=object),
            lambda o: o.at.__setitem__((0, "w"), "3"),
            lambda o: float(o["w"][0]),
        ),
        (lambda: ctypes.c_double(1.0), lambda o: setattr(o, "value", 3.0), lambda o: o.value),
        (lambda: mp.Value("d", 1.0), lambda o: setattr(o, "value", 3.0), lambda o: o.value),
        (lambda: contextvars.ContextVar("w", default=1.0), lambda o: o.set(3.0), lambda o: o.get()),
        (lambda: _local(1.0), _weight_of_3, lambda o: o.weight),
        (lambda: _module(1.0), _weight_of_3, lambda o: o.weight),
        (lambda: type("Made", (), {"weight": 1.0}), _weight_of_3, lambda o: o.weight),
    ],
)
def test_what_equality_and_attributes_do_not_tell_is_noticed(
    made: Callable[[], Any], change: Callable[[Any], None], read: Callable[[Any], float]
) -> None:
    s, thing, traces = _strategy(), made(), []

    def step(x: Any, thing: Any) -> Any:
        traces.append(thing)
        return x * read(thing)

    def now() -> float:
        return float(s.run(step, args=(jnp.float32(1), thing)).values[0])

    assert [now(), now()] == [1.0, 1.0]
    assert len(traces) == 1
    change(thing)
    assert [now(), now()] == [3.0, 3.0]
    assert len(traces) == 2


def _local(weight: float) -> Any:
    local: Any = threading.local()
    local.weight = weight
    return local


def _module(weight: float) -> Any:
    module: Any = ModuleType("config")
    module.weight = weight
    return module


def test_an_equal_object_that_the_function_changes_is_refused_and_unharmed() -> None:
    s, node = _strategy(), Node(1, 1.0)

    def step(x: Any, node: Node) -> Any:
        node.weight += 1
        return x

    with pytest.raises(ArgumentTypeError, match=r"changes node, a Node \(\.weight: 1.0 -> 2.0\)"):
        s.run(step, args=(1.0, node))
    assert node.weight == 1.0


def test_equal_objects_have_programs_of_their_own_where_they_differ() -> None:
    assert static_key(Partly("m", 1.0)) != static_key(Partly("m", 3.0))
    assert static_key(Dense(1.0)) != static_key(Dense(3.0))
    one, other = Partly("m", 1.0), Partly("m", 1.0)
    one.computed["calls"] = 1
    assert static_key(one) == static_key(other)
    assert static_key(Dense(1.0)) == static_key(Dense(1.0))


@dataclasses.dataclass(frozen=True)
class Ring:
    """Holds itself."""

    name: str
    inner: Any = None

    def __hash__(self) -> int:
        return hash(self.name)


def test_an_equal_object_that_holds_itself_has_a_key() -> None:
    ring = Ring("a")
    object.__setattr__(ring, "inner", (ring,))
    assert static_key(ring) == static_key(ring)
    assert static_key(Ring("a", 1)) != static_key(Ring("a", 2))


def test_modules_and_classes_of_libraries_are_not_looked_into() -> None:
    for thing in (np, jnp, optax, pd.DataFrame, linen.Dense, dl):
        assert len(static_key(thing)) == 1


def test_an_object_with_variables_trains_as_in_tensorflow() -> None:
    s = _strategy()
    with s.scope():
        model = Plain(w=dl.Variable(1.0), scale=2.0)

    def step(model: Any, x: Any) -> Any:
        model.w.assign_add(x)
        return model.w * model.scale

    losses = [float(s.run(step, args=(model, 1.0)).values[0]) for _ in range(3)]
    assert losses == [4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda thing, x: setattr(thing, "total", thing.total + x),
        lambda thing, _: setattr(thing, "new", 1),
        lambda thing, x: thing.seen.append(x),
        lambda thing, x: thing.inner.update(last=x),
        lambda thing, _: delattr(thing, "total"),
    ],
)
def test_an_object_that_the_function_changes_is_refused_and_unharmed(
    change: Callable[[Any, Any], Any],
) -> None:
    s = _strategy()
    metric: Any = Plain(total=0.0, seen=[1], inner={})

    def step(metric: Any, x: Any) -> Any:
        change(metric, x)
        return x

    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match=r"changes metric, a Plain.*dl|distlab.Variab"):
            s.run(step, args=(metric, 1.0))
        assert vars(metric) == {"total": 0.0, "seen": [1], "inner": {}}


def test_a_failed_trace_restores_its_arguments() -> None:
    s = _strategy()
    thing: Any = Plain(n=1)

    def step(thing: Any, x: Any) -> Any:
        thing.n = x
        raise KeyError("later")

    with pytest.raises(KeyError, match="later"):
        s.run(step, args=(thing, 1.0))
    assert thing.n == 1


# ---- RunOptions


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 1},
        {"static_argnums": (1,)},
        {"static_argnums": -1},
        {"static_argnames": "times"},
        {"static_argnames": ("times",)},
        {"static_argnums": 1, "static_argnames": "times"},
    ],
)
def test_a_static_number_is_a_number(options: dict[str, Any]) -> None:
    s = _strategy()

    def repeated(x: Any, times: int) -> list[Any]:
        return [x * 1.0] * times

    run = functools.partial(s.run, repeated, options=dl.RunOptions(**options))
    assert len(run(args=(1.0, 3))) == 3
    assert len(run(args=(1.0, 2))) == 2
    if options.get("static_argnums") != -1:
        assert len(run(args=(1.0,), kwargs={"times": 4})) == 4


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("options", "args", "message"),
    [
        ({"static_argnums": 5}, (1.0, 2), "positions of the function's arguments"),
        ({"static_argnums": True}, (1.0, 2), "positions"),
        ({"static_argnums": "times"}, (1.0, 2), "positions"),
        ({"static_argnames": "time"}, (1.0, 2), r"\['time'\].*'times'"),
        ({"static_argnames": 1}, (1.0, 2), "a name or a tuple of names"),
        ({"static_argnums": 1}, (1.0, [2]), "must have a hash, got a list.*tuple"),
        ({"static_argnums": 1}, (1.0, np.ones(2)), "must have a hash, got a ndarray"),
        ({"static_argnums": 0, "donate_argnums": 0}, (1.0, 2), "donated and static"),
        ({"static_argnames": "x", "donate_argnums": (0,)}, (1.0, 2), "donated and static"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, Any], args: tuple[Any, ...], message: str
) -> None:
    s = _strategy()

    def fn(x: Any, times: Any) -> Any:
        return x

    with pytest.raises(OptionError, match=message):
        s.run(fn, args=args, options=dl.RunOptions(**options))


def test_a_per_replica_value_is_never_static() -> None:
    s = _strategy()
    x = s.replicate(1.0)
    with pytest.raises(OptionError, match="x is static, but has a component for each replica"):
        s.run(lambda x: x, args=(x,), options=dl.RunOptions(static_argnums=0))


def test_many_values_of_a_static_number_are_told_of_by_name() -> None:
    s = _strategy()
    options = dl.RunOptions(static_argnames="rate")

    def step(x: Any, rate: float) -> Any:
        return x * rate

    def train(rate: float) -> Any:
        return s.run(step, args=(1.0, rate), options=options)

    for n in range(4):
        train(float(n))
    with pytest.warns(RecompilationWarning, match=r"5 values.*rate: 3\.0 -> 4\.0") as caught:
        train(4.0)
    assert caught[0].filename == __file__
    train(5.0)


def test_an_attribute_that_changes_at_each_call_is_told_of_by_name() -> None:
    s = _strategy()
    trainer: Any = Plain(step=0, rate=0.5)

    def step(trainer: Any, x: Any) -> Any:
        return x * trainer.rate

    def train() -> None:
        for n in range(5):
            trainer.step = n
            s.run(step, args=(trainer, 1.0))

    with pytest.warns(RecompilationWarning, match=r"trainer\.step: 3 -> 4"):
        train()


def test_flags_names_and_shapes_are_no_reason_to_warn() -> None:
    s = _strategy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in "abcdefgh":
            s.run(lambda x, name: x + len(name), args=(1.0, name))
        for rows in range(1, 7):
            for flag in (True, False):
                s.run(lambda x, flag: x if flag else -x, args=(np.ones(rows), flag))


# ---- objects that are changed in place


def _torch_like(base: str) -> Any:
    return type("Net", (), {"__module__": base, "state_dict": dict})()


@pytest.mark.usefixtures("eager")
def test_a_state_holder_is_refused_with_the_way_out() -> None:
    s = _strategy()
    ran = []

    def step(model: Any, x: Any) -> Any:
        ran.append(1)
        return x

    with pytest.raises(ArgumentTypeError, match=r"model is a \S+ Net, .*state_dict"):
        s.run(step, args=(_torch_like("torch.nn.modules.module"), 1.0))
    nested = {"m": (1, _torch_like("torch.nn.modules.module"))}
    with pytest.raises(ArgumentTypeError, match=r"model\['m'\]\[1\] is a \S+ Net"):
        s.run(step, kwargs={"model": nested, "x": 1.0})
    assert not ran


def test_the_default_strategy_runs_python_on_them() -> None:
    metric = nnx.metrics.Average()
    dl.get_strategy().run(lambda m, x: m.update(values=x), args=(metric, jnp.ones(2)))
    assert float(metric.compute()) == 1.0


def _loss(model: Any, x: jax.Array) -> jax.Array:
    return ((model(x) - 1.0) ** 2).mean()


def test_nnx_trains_by_its_state(eager: bool) -> None:
    s = _strategy()
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    data = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    dataset = dl.data.Dataset.from_tensor_slices(data).batch(8).repeat(3)

    def step(graphdef: Any, state: Any, x: jax.Array) -> Any:
        model, optimizer = nnx.merge(graphdef, state)
        loss, grads = nnx.value_and_grad(_loss)(model, x)
        optimizer.update(model, dl.get_replica_context().all_reduce("MEAN", grads))
        return loss, nnx.state((model, optimizer))

    for x in s.experimental_distribute_dataset(dataset):
        graphdef, state = nnx.split((model, optimizer))
        _, state = s.run(step, args=(graphdef, state, x))
        nnx.update((model, optimizer), s.experimental_local_results(state)[0])

    alone = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    sgd = nnx.Optimizer(alone, optax.sgd(0.1), wrt=nnx.Param)
    for _ in range(3):
        sgd.update(alone, nnx.grad(_loss)(alone, data))
    np.testing.assert_allclose(model.kernel[...], alone.kernel[...], rtol=1e-5)
    assert eager in (True, False)


def test_nnx_from_outside_is_never_stale() -> None:
    s = _strategy()
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = np.ones((2, 3), np.float32)

    def evaluate(x: jax.Array) -> Any:
        return model(x).sum()

    for scale in (0.0, 1.0):
        model.kernel[...] = jnp.full((3, 2), scale)
        assert float(s.run(evaluate, args=(x,)).values[0]) == 12.0 * scale
    model.kernel[...] = jnp.full((3, 2), 2.0)
    assert float(s.run(evaluate, args=(x,)).values[0]) == 24.0
    model.kernel[...] = jnp.full((3, 2), 3.0)
    with pytest.warns(RecompilationWarning, match=r"model, a flax\.nnx Linear.*3 times.*args="):
        assert float(s.run(evaluate, args=(x,)).values[0]) == 36.0


def test_nnx_from_outside_can_not_be_changed(eager: bool) -> None:
    s = _strategy()
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    metric = nnx.metrics.Average()
    before = np.asarray(model.kernel[...])

    def step(x: jax.Array) -> Any:
        metric.update(values=_loss(model, x))
        model.kernel[...] = model.kernel[...] * 2
        return x

    error: Any = ArgumentTypeError if eager else Exception
    with pytest.raises(error) as caught:
        s.run(step, args=(np.ones((2, 3), np.float32),))
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "metric, a flax.nnx Average" in told
    assert "pass it in args=(...)" in told
    np.testing.assert_array_equal(model.kernel[...], before)
    assert int(metric.count[...]) == 0


def test_replicate_keeps_what_is_no_array_and_refuses_what_is_changed_in_place() -> None:
    s = _strategy()
    state = s.replicate({"w": 1.0, "name": "a", "f": jnp.tanh, "flag": True})
    assert (state["name"], state["f"], state["flag"]) == ("a", jnp.tanh, True)
    assert [float(v) for v in state["w"].values] == [1.0, 1.0]
    with pytest.raises(
        ArgumentTypeError, match=r"to replicate is a flax\.nnx Linear.*run holds one copy"
    ):
        s.replicate([nnx.Linear(2, 3, rngs=nnx.Rngs(0))])
    with pytest.raises(dl.errors.ValueShapeError, match="all components"):
        s.replicate(state)
    _, nnx_state = nnx.split(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    assert isinstance(s.replicate(nnx_state)["bias"].get_raw_value(), dl.PerReplica)


class Sizes:
    """Has a value that is computed once, when it is first read."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @functools.cached_property
    def doubled(self) -> int:
        """Twice the rows."""
        return 2 * self.rows


def test_reading_what_an_object_keeps_is_no_change() -> None:
    s, sizes, compiled = dl.MirroredStrategy(["CPU:0", "CPU:1"]), Sizes(3), []

    def step(sizes: Sizes) -> Any:
        compiled.append(sizes)
        return jnp.ones(()) * sizes.doubled

    for rows in (3, 3, 4):
        if rows != sizes.rows:
            sizes = Sizes(rows)
        assert [float(value) for value in s.run(step, (sizes,)).values] == [2.0 * rows] * 2
    assert len(compiled) == 2


def test_reading_an_index_of_pandas_is_no_change() -> None:
    s, index = dl.MirroredStrategy(["CPU:0", "CPU:1"]), pd.Index([1, 2, 3])

    def step(index: Any) -> Any:
        return jnp.ones(()) * (len(index) if index.is_unique else 0)

    for _ in range(2):
        assert [float(value) for value in s.run(step, (index,)).values] == [3.0] * 2


@pytest.mark.parametrize(
    ("buffer", "write"),
    [
        (bytearray(b"ab"), lambda buffer: buffer.append(1)),
        (bytearray(100_000), lambda buffer: buffer.__setitem__(0, 1)),
        (array.array("f", [1.0, 2.0]), lambda buffer: buffer.__setitem__(0, 9.0)),
        (memoryview(bytearray(b"ab")), lambda buffer: buffer.__setitem__(0, 9)),
        (np.ones(3, np.float32).data, lambda buffer: buffer.__setitem__(0, 9.0)),
    ],
)
def test_what_is_written_to_a_buffer_is_noticed(buffer: Any, write: Callable[[Any], Any]) -> None:
    s = _strategy()

    def total(buffer: Any) -> Any:
        return jnp.zeros(()) + sum(buffer)

    for _ in range(2):
        assert float(s.run(total, args=(buffer,)).values[0]) == sum(buffer)
        write(buffer)
    assert s.run(len, args=(memoryview(b"abc"),)) == 3


def test_a_buffer_that_the_function_writes_to_is_refused_and_unharmed() -> None:
    given = bytearray(b"ab")
    with pytest.raises(ArgumentTypeError, match="changes buffer, a bytearray"):
        _strategy().run(lambda buffer: buffer.append(1), args=(given,))
    assert given == b"ab"


@pytest.mark.parametrize("change", ["column", "element"])
def test_what_a_data_frame_holds_is_noticed(change: str) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    frame = pd.DataFrame({"rate": [2.0], "name": ["a"]})

    def step(frame: Any, x: Any) -> Any:
        return x * float(frame["rate"][0])

    assert strategy.run(step, args=(frame, 1.0)).values[0] == 2.0
    if change == "column":
        frame["rate"] = [4.0]
    else:
        frame.loc[0, "rate"] = 4.0
    assert strategy.run(step, args=(frame, 1.0)).values[0] == 4.0
    frame.columns = ["other", "rate"]
    frame["rate"] = [6.0]
    assert strategy.run(step, args=(frame, 1.0)).values[0] == 6.0


@pytest.mark.parametrize("box", [bytearray(b"\x02"), array.array("i", [2])])
def test_what_is_written_to_bytes_is_noticed(box: Any) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    held = SimpleNamespace(box=box)

    def step(held: Any, x: Any) -> Any:
        return x * held.box[0]

    assert strategy.run(step, args=(held, 1.0)).values[0] == 2.0
    box[0] = 4
    assert strategy.run(step, args=(held, 1.0)).values[0] == 4.0

"""The cache of programs: which functions share them, and which are compiled again."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import distlab as dl
from distlab import events
from distlab.errors import RecompilationWarning
from distlab.events import Compile
from distlab.recording import RingRecorder
from distlab.step.programs.cache import ProgramCache
from tests.listening import listening
from tests.step.cells import in_a_notebook

Step = Callable[..., Any]


def function(number: int) -> Step:
    """Makes functions that differ in their code."""
    made: dict[str, Step] = {}
    exec(f"def step(x):\n    return x + {number}", made)
    return made["step"]


def test_a_function_has_programs_of_its_own() -> None:
    cache = ProgramCache()
    first, second = function(1), function(2)
    assert cache.of(first) is cache.of(first)
    assert cache.of(first) is not cache.of(second)


def closing_over(value: Any) -> Step:
    return lambda x: x * value


def with_default(value: Any) -> Step:
    def step(x: Any, rate: Any = value) -> Any:
        return x * rate

    return step


def with_helper(value: Any) -> Step:
    def scale(x: Any) -> Any:
        return x * value

    def step(x: Any) -> Any:
        return scale(x) + 1

    return step


def with_attribute(value: Any) -> Step:
    config.rate = value
    return lambda x: x * config.rate


def of_an_object(value: Any) -> Step:
    trainer.rate = value
    return trainer.step


def of_a_global(value: Any) -> Step:
    global rate
    rate = value
    return lambda x: x * rate


def partial_of(value: Any) -> Step:
    return functools.partial(lambda x, rate: x * rate, rate=value)


def in_a_list(value: Any) -> Step:
    rates[0] = value
    return lambda x: x * rates[0]


@dataclass
class Trainer:
    """Has no hash, as dataclasses have none."""

    rate: Any = 0.0

    def step(self, x: Any) -> Any:
        return x * self.rate


config, trainer, rate, rates = Trainer(), Trainer(), 0.0, [0.0]
MAKERS: Sequence[Callable[[Any], Step]] = (
    *(closing_over, with_default, with_helper, with_attribute, of_an_object, of_a_global),
    *(partial_of, in_a_list),
)


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_made_anew_is_the_same_while_it_refers_to_the_same(
    make: Callable[[Any], Step],
) -> None:
    cache = ProgramCache()
    assert cache.of(make(0.5)) is cache.of(make(0.5))


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_that_refers_to_another_number_is_another(make: Callable[[Any], Step]) -> None:
    cache = ProgramCache()
    assert cache.of(make(0.5)) is not cache.of(make(0.25))


@pytest.mark.parametrize("make", MAKERS)
def test_a_step_made_anew_computes_with_the_numbers_of_now(make: Callable[[Any], Step]) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.replicate(np.float32(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompilationWarning)  # that is what it is about
        values = [strategy.run(make(n), args=(x,)).values[1] for n in (1.0, 2.0, 2.0, 3.0, 4.0)]
    offset = 1 if make is with_helper else 0
    assert [float(value) - offset for value in values] == [1, 2, 2, 3, 4]


def test_numbers_of_another_type_and_one_name_with_two_meanings_are_told_apart() -> None:
    cache = ProgramCache()
    kinds = [1, 1.0, True, "1", None, (1,), [1], {"a": 1}, {"b": 1}, np.float32(1), float("nan")]
    programs = [cache.of(with_default(value)) for value in kinds[:1]]
    for value in kinds[1:]:
        cache = ProgramCache()
        before = cache.of(closing_over(1))
        assert cache.of(closing_over(value)) is not before
    assert programs == [{}]
    cache = ProgramCache()
    assert cache.of(closing_over(float("nan"))) is cache.of(closing_over(float("nan")))


def test_arrays_are_compared_by_object_and_small_numpy_ones_by_content_too() -> None:
    cache = ProgramCache()
    device, small = jnp.ones(3), np.ones(3)
    assert cache.of(closing_over(device)) is cache.of(closing_over(device))
    assert cache.of(closing_over(device)) is not cache.of(closing_over(jnp.ones(3)))
    before = cache.of(closing_over(small))
    assert cache.of(closing_over(small)) is before
    cache = ProgramCache()
    before = cache.of(closing_over(small))
    small[0] = 2
    assert cache.of(closing_over(small)) is not before


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32])
@pytest.mark.parametrize("later", ["the same step", "another step", "another strategy"])
def test_a_step_made_later_has_what_was_written_into_an_array_meanwhile(
    kind: type[np.generic], later: str
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    array = np.array([2, 2], kind)
    # Its program is kept, and with it what JAX made of the array.
    first = strategy.run(closing_over(array), (3,))
    array[:] = 4
    if later == "another strategy":
        strategy = dl.MirroredStrategy(["CPU:2", "CPU:3"])
    step = with_default if later == "another step" else closing_over
    second = strategy.run(step(array), (3,))
    np.testing.assert_array_equal(first.values[0], [6, 6])
    np.testing.assert_array_equal(second.values[0], [12, 12])


def test_a_function_that_refers_to_itself_is_found_again() -> None:
    def make() -> Step:
        def step(x: Any, depth: int = 2) -> Any:
            return x if depth == 0 else step(x, depth - 1) + 1

        return step

    cache = ProgramCache()
    assert cache.of(make()) is cache.of(make())


def test_a_nested_step_is_compiled_once_and_updates_its_variable() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        total = dl.Variable(0.0)
    batch = strategy.replicate(np.float32(1))

    def train_step(batch: Any) -> Any:
        def scaled(x: Any) -> Any:
            return x * 2

        def step_fn(x: Any) -> Any:
            total.assign_add(dl.get_replica_context().all_reduce("SUM", scaled(x)))
            return x

        return strategy.run(step_fn, args=(batch,))

    with listening() as heard:
        for _ in range(20):
            train_step(batch)
    assert float(total.value()) == 80
    assert len(heard.of(events.Compile)) == 1
    assert len(heard.of(events.Step)) == 20


def test_the_third_compilation_for_one_call_each_names_what_changes() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.replicate(np.float32(1))

    def train(scale: float) -> Any:
        return strategy.run(lambda v: v * scale, args=(x,))

    train(1.0)
    train(2.0)
    with pytest.warns(RecompilationWarning, match=r"scale: 2.0 -> 3.0.*args=") as caught:
        train(3.0)
    assert caught[0].filename == __file__
    train(4.0)  # once is enough: another warning would be an error here


def test_a_new_array_at_each_call_is_named_and_another_variable_is_not() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variables = [dl.Variable(0.0) for _ in range(5)]
    for v in variables:
        strategy.run(v.assign_add, args=(jnp.ones(()),))
        strategy.run(lambda v=v: v.assign_add(1.0))
    assert [float(v.value()) for v in variables] == [2.0] * 5
    cache = ProgramCache()
    cache.of(closing_over(jnp.zeros(2)))
    cache.of(closing_over(jnp.zeros(2)))
    with pytest.warns(RecompilationWarning, match="value: an array -> an array"):
        cache.of(closing_over(jnp.zeros(2)))


def test_another_function_in_the_closure_is_not_told_as_a_number_that_changed() -> None:
    def calling(helper: Step) -> Step:
        return lambda x: helper(x) + 1

    direct, nested, partial = ProgramCache(), ProgramCache(), ProgramCache()
    for number in range(5):  # a warning would be an error here
        direct.of(calling(function(number)))
        nested.of(calling(calling(function(number))))
        partial.of(calling(functools.partial(function(number), 1)))


def test_functions_that_are_used_again_are_no_reason_to_warn() -> None:
    cache = ProgramCache()
    steps = [closing_over(n) for n in range(6)]
    for step in steps:
        cache.of(step)
        cache.of(step)


def test_the_function_that_was_not_used_for_longest_goes_first() -> None:
    cache = ProgramCache()
    functions = [function(n) for n in range(257)]
    kept = [cache.of(step) for step in functions[:256]]
    assert cache.of(functions[0]) is kept[0]
    cache.of(functions[256])
    assert cache.of(functions[0]) is kept[0]
    assert cache.of(functions[1]) is not kept[1]


def test_threads_that_fill_the_cache_do_not_lose_each_others_functions() -> None:
    cache = ProgramCache()
    functions = [function(n) for n in range(300)]

    def use(order: Sequence[int]) -> int:
        return sum(cache.of(functions[n]) is not None for n in order)

    orders = [range(300), range(299, -1, -1), [n * 7 % 300 for n in range(300)]] * 20
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(use, orders)) == [300] * 60


class _Scaled:
    offset = 0.0

    def __init__(self) -> None:
        self.rate = 1.0

    def __call__(self, x: Any) -> Any:
        return self.rate * x + self.offset

    def step(self, x: Any) -> Any:
        return self.rate * x + self.offset


def test_what_is_noticed_of_an_object_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    scaled = _Scaled()
    for way in (scaled, scaled.step):
        scaled.rate = 1.0
        assert strategy.run(way, args=(2.0,)).values[0] == 2.0
        scaled.rate = 3.0
        assert strategy.run(way, args=(2.0,)).values[0] == 6.0
        scaled.rate = 1.0
        assert strategy.run(way, args=(2.0,)).values[0] == 2.0
    monkeypatch.setattr(_Scaled, "offset", 1.0)  # as in a tf.function
    assert strategy.run(scaled, args=(2.0,)).values[0] == 2.0


class _Annealed:
    """Computes with what it reads itself, in nests, and through its methods and properties."""

    def __init__(self) -> None:
        self.rate = 1.0
        self.rates: dict[str, Any] = {"a": [1.0]}

    @property
    def twice(self) -> float:
        return 2 * self.rate

    def scaled(self, x: Any) -> Any:
        return x * self.twice

    def by_nest(self, x: Any) -> Any:
        return x * self.rates["a"][0]

    def by_property(self, x: Any) -> Any:
        return x * self.twice / 2

    def by_method(self, x: Any) -> Any:
        return self.scaled(x) / 2

    def by_gradient(self, x: Any) -> Any:
        return jax.grad(lambda p: self.scaled(p) + 0)(x) / 2

    def __call__(self, x: Any) -> Any:
        return self.by_method(x)


class _Derived(_Annealed):
    def by_method(self, x: Any) -> Any:
        return super().by_method(x)


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
@pytest.mark.parametrize("kind", [_Annealed, _Derived])
@pytest.mark.parametrize("way", ["by_nest", "by_property", "by_method", "by_gradient", "__call__"])
def test_attributes_that_a_method_reaches_in_any_way_are_noticed(
    way: str, kind: type[_Annealed]
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    annealed = kind()
    step = annealed if way == "__call__" else getattr(annealed, way)
    seen = []
    for rate in (1.0, 2.0, 3.0):
        annealed.rate, annealed.rates["a"][0] = rate, rate
        seen.append(float(strategy.run(step, args=(1.0,)).values[0]))
    assert seen == [1.0, 2.0, 3.0]


class _Counting:
    """Counts in a method that its step does not call, though another object's has the name."""

    def __init__(self) -> None:
        self.count = 0
        self.model = SimpleNamespace(update=lambda x: x + 1)

    def update(self) -> None:
        self.count += 1

    def step(self, x: Any) -> Any:
        return self.model.update(x)


def test_a_number_that_only_the_method_of_another_object_would_read_is_no_new_program() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    counting = _Counting()
    with listening() as heard:
        for _ in range(4):
            counting.update()
            assert strategy.run(counting.step, args=(1.0,)).values[0] == 2.0
    assert len(heard.of(events.Compile)) == 1


@dataclass
class _Unhashable:
    rate: float

    def __call__(self, x: Any) -> Any:
        return x * self.rate


def test_attributes_of_a_called_object_without_a_hash_are_noticed() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    step = _Unhashable(1.0)
    assert strategy.run(step, args=(2.0,)).values[0] == 2.0
    step.rate = 3.0
    assert strategy.run(step, args=(2.0,)).values[0] == 6.0


class _Set:
    """Computes with an attribute's type and sign."""

    def __init__(self) -> None:
        self.number: Any = None

    def step(self, x: Any) -> Any:
        return jnp.copysign(x, float(self.number)) * _FACTORS[type(self.number)]


_FACTORS = {bool: 1.0, int: 2.0, float: 3.0, np.float32: 4.0}


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
@pytest.mark.parametrize("where", ["attribute", "closure", "default", "static tuple"])
def test_numbers_that_are_equal_are_told_apart_by_type_and_sign(where: str) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    of_object = _Set()

    def first(x: Any, numbers: Any) -> Any:
        return jnp.copysign(x, float(numbers[0])) * _FACTORS[type(numbers[0])]

    def run(number: Any) -> Any:
        of_object.number = number
        if where == "static tuple":
            options = dl.RunOptions(static_argnums=1)
            return strategy.run(first, args=(1.0, (number, 2)), options=options)

        def with_default(x: Any, numbers: Any = (number,)) -> Any:
            return first(x, numbers)

        functions: dict[str, Step] = {
            "attribute": of_object.step,
            "closure": lambda x: first(x, [number]),
            "default": with_default,
        }
        return strategy.run(functions[where], args=(1.0,))

    for number in (
        1,
        True,
        1.0,
        np.float32(1),
        0.0,
        -0.0,
        np.float32(-0.0),
        np.float32(0),
        0,
        False,
    ):
        expected = np.copysign(1.0, float(number)) * _FACTORS[type(number)]
        assert float(run(number).values[0]) == expected


class _Trainer:
    """Keeps its state in attributes, as an array, a nest and a named tuple."""

    def __init__(self) -> None:
        self.scale = jnp.ones(())
        self.params: Any = {"w": jnp.zeros(2), "more": [(np.zeros(2, np.float32), 0.5)]}
        self.state = optax.sgd(0.1, momentum=0.9).init(self.params["w"])
        self.unused = [jnp.zeros(())]

    def step(self, x: Any) -> Any:
        w = self.params["w"] + self.scale * x + self.params["more"][0][0]
        return w, jax.tree.map(lambda trace: trace + x, self.state)


def test_arrays_that_replace_attributes_are_noticed_and_warned_of() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    trainer = _Trainer()

    def train() -> list[float]:
        seen = []
        for _ in range(3):
            result = strategy.run(trainer.step, args=(1.0,))
            (w, trainer.state), *_ = strategy.experimental_local_results(result)
            trainer.params = {**trainer.params, "w": w}
            seen.append(float(w[0]))
        return seen

    with pytest.warns(RecompilationWarning, match=r"step was compiled .*_Trainer with .*=arrays"):
        seen = train()
    assert seen == [1.0, 2.0, 3.0]
    assert jax.tree.leaves(trainer.state)[0].tolist() == [3.0, 3.0]


def test_attributes_that_a_function_does_not_name_compile_nothing_anew(
    recorder: RingRecorder,
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    trainer = _Trainer()
    for _ in range(4):
        strategy.run(trainer.step, args=(1.0,))
        trainer.unused = [*trainer.unused, jnp.ones(())]
    compiled = [event for event in recorder.ring.since(0).events if isinstance(event, Compile)]
    assert len(compiled) == 1


def test_a_setting_of_jax_that_changes_what_is_traced_makes_another_program() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step(x: Any) -> Any:
        return x.astype(float) / 3

    def draw() -> Any:
        return jax.random.uniform(jax.random.key(0), (3,))

    x = jnp.arange(3)
    assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float32
    usual = strategy.run(draw).values[0].tolist()
    with jax.enable_x64(True):
        assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float64
    with jax.threefry_partitionable(False):
        other = strategy.run(draw).values[0].tolist()
        assert other == jax.jit(draw)().tolist() != usual
    assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float32
    assert strategy.run(draw).values[0].tolist() == usual


def test_an_attribute_with_the_name_of_a_changing_global_compiles_nothing_anew(
    recorder: RingRecorder,
) -> None:
    scope: dict[str, Any] = {}
    exec(  # a script's own globals
        "class Model:\n"
        "    def loss(self, x):\n"
        "        return x.sum()\n"
        "    def step(self, x):\n"
        "        return self.loss(x)\n",
        scope,
    )
    strategy, model = dl.MirroredStrategy(["CPU:0", "CPU:1"]), scope["Model"]()
    for _ in range(5):
        losses = strategy.run(model.step, args=(jnp.ones(3),))
        scope["loss"] = strategy.reduce("SUM", losses, axis=None)
    assert float(scope["loss"]) == 6
    assert len([e for e in recorder.ring.since(0).events if isinstance(e, Compile)]) == 1


_STEPS = {
    "by its name": """
def step():
    traces.append(1)
    w.assign_add(1.0)
""",
    "in a function of the step": """
def step():
    traces.append(1)
    def add():
        w.assign_add(1.0)
    add()
""",
    "in a function that it calls": """
def add():
    w.assign_add(1.0)

def step():
    traces.append(1)
    add()
""",
    "in a dict": """
def step():
    traces.append(1)
    params["w"].assign_add(1.0)
""",
    "in an object": """
def step():
    traces.append(1)
    model.w.assign_add(1.0)
""",
    "in a closure": """
def made(w):
    def step():
        traces.append(1)
        w.assign_add(1.0)
    def again(new):
        nonlocal w
        w = new
    return step, again

step, again = made(w)
""",
}


@pytest.mark.parametrize("step", _STEPS.values(), ids=_STEPS.keys())
def test_variables_that_a_cell_makes_again_are_the_ones_that_are_trained(step: str) -> None:
    cells = {
        "model": """
from types import SimpleNamespace
with s.scope():
    w = dl.Variable(0.0)
params = {"w": w}
model = SimpleNamespace(w=w)
if "again" in globals():
    again(w)
""",
        "step": step,
        "train": "for _ in range(3): s.run(step)\nresult = float(w)",
    }
    names = in_a_notebook(cells, ["model", "step", "train", "train"])
    assert (names["result"], len(names["traces"])) == (6.0, 1)
    gc.disable()  # which would let go of the old variable, and of what was compiled for it
    try:
        for _ in range(2):
            for cell in "model", "train":
                exec(cells[cell], names)
            assert names["result"] == 3.0
    finally:
        gc.enable()
    assert len(names["traces"]) == 3

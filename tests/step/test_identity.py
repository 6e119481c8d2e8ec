"""The identity of replica functions and static arguments: when a program serves again."""

from __future__ import annotations

import dataclasses
import enum
import functools
import gc
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import distlab as dl
from distlab import events
from distlab.errors import ArgumentTypeError, RecompilationWarning
from distlab.step.functions.identity import identity_of
from distlab.step.programs.cache import ProgramCache
from tests.listening import listening
from tests.step.cells import in_a_notebook

Step = Callable[..., Any]


def function(number: int) -> Step:
    """Makes functions that differ in their code."""
    made: dict[str, Step] = {}
    exec(f"def step(x):\n    return x + {number}", made)
    return made["step"]


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
        return scale(x)

    return step


def partial_of(value: Any) -> Step:
    return functools.partial(lambda x, rate: x * rate, rate=value)


MAKERS = (closing_over, with_default, with_helper, partial_of)


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_made_anew_is_found_by_what_it_refers_to(make: Callable[[Any], Step]) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.replicate(np.float32(1))
    with listening() as heard:
        values = [strategy.run(make(n), args=(x,)).values[1] for n in (1.0, 2.0, 2.0, 1.0)]
    assert [float(value) for value in values] == [1, 2, 2, 1]
    assert len(heard.of(events.Compile)) == 2


def test_constants_are_told_apart_by_type_and_sign() -> None:
    constants = (1, 1.0, True, "1", None, (1,), (1.0,), np.float32(1))
    signs = (0.0, -0.0, float("nan"), complex(0, -0.0))
    keys = [identity_of(closing_over(value)).key for value in (*constants, *signs)]
    code = closing_over(0).__code__
    assert all(key[0] == id(code) for key in keys)  # type: ignore[index]
    assert len(set(keys)) == len(keys)
    again = [identity_of(closing_over(value)).key for value in (*constants, *signs)]
    assert keys == again


def test_arrays_and_other_objects_are_compared_by_identity() -> None:
    for make in (lambda: jnp.ones(3), lambda: np.ones(3), lambda: Config(1.0), list, object):
        one, other = make(), make()
        identities = [identity_of(closing_over(value)) for value in (one, one, other)]
        assert identities[0].key == identities[1].key != identities[2].key
        assert any(kept is one for kept in identities[0].kept)


def test_a_function_that_refers_to_itself_has_a_key() -> None:
    def make() -> Step:
        def step(x: Any, depth: int = 2) -> Any:
            return x if depth == 0 else step(x, depth - 1) + 1

        return step

    assert hash(identity_of(make()).key)


class _Trainer:
    def __init__(self) -> None:
        self.rate = 1.0

    def step(self, x: Any) -> Any:
        return x * self.rate

    def __call__(self, x: Any) -> Any:
        return x * self.rate


@pytest.mark.parametrize("way", ["method", "call"])
def test_a_method_is_found_by_its_function_and_object(way: str) -> None:
    strategy, trainer = dl.MirroredStrategy(["CPU:0", "CPU:1"]), _Trainer()
    with listening() as heard:
        for _ in range(3):
            step = trainer.step if way == "method" else trainer
            assert float(strategy.run(step, args=(2.0,)).values[0]) == 2.0
        trainer.rate = 3.0  # unnoticed, as by jax.jit
        assert float(strategy.run(step, args=(2.0,)).values[0]) == 2.0
        assert float(strategy.run(_Trainer().step, args=(2.0,)).values[0]) == 2.0
    assert len(heard.of(events.Compile)) == 2


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


def test_the_third_compilation_in_a_row_names_the_change() -> None:
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


def test_a_new_array_per_call_warns_a_new_variable_does_not() -> None:
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


def test_other_or_used_functions_do_not_warn() -> None:
    def calling(helper: Step) -> Step:
        return lambda x: helper(x) + 1

    direct, partial, used = ProgramCache(), ProgramCache(), ProgramCache()
    for number in range(5):  # a warning would be an error here
        direct.of(calling(function(number)))
        partial.of(calling(functools.partial(function(number), 1)))
        step = closing_over(number)
        used.of(step)
        used.of(step)


def test_the_function_that_was_not_used_for_longest_goes_first() -> None:
    cache = ProgramCache()
    functions = [function(n) for n in range(257)]
    kept = [cache.of(step) for step in functions[:256]]
    assert cache.of(functions[0]) is kept[0]
    cache.of(functions[256])
    assert cache.of(functions[0]) is kept[0]
    assert cache.of(functions[1]) is not kept[1]


def test_threads_that_fill_the_cache_do_not_lose_functions() -> None:
    cache = ProgramCache()
    functions = [function(n) for n in range(300)]

    def use(order: Sequence[int]) -> int:
        return sum(cache.of(functions[n]) is not None for n in order)

    orders = [range(300), range(299, -1, -1), [n * 7 % 300 for n in range(300)]] * 4
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(use, orders)) == [300] * 12


def test_a_jax_setting_that_changes_traces_recompiles() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step(x: Any) -> Any:
        return x.astype(float) / 3

    x = jnp.arange(3)
    assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float32
    with jax.enable_x64(True):
        assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float64
    assert strategy.run(step, args=(x,)).values[0].dtype == jnp.float32


# ---- globals that a notebook replaces

_STEPS = {
    "by its name": """
def step():
    traces.append(1)
    w.assign_add(1.0)
""",
    "in a function that it calls": """
def add():
    w.assign_add(1.0)

def step():
    traces.append(1)
    add()
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
def test_variables_that_a_cell_makes_again_are_trained(step: str) -> None:
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


def test_autoreload_of_the_step_and_of_its_helper_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from IPython.extensions.autoreload import ModuleReloader

    def write(factor: int, added: int, age: int) -> None:
        file = tmp_path / "reloaded_steps.py"
        file.write_text(
            f"def helper(x): return x * {factor}\ndef step(x): return helper(x) + {added}\n"
        )
        os.utime(file, (time.time() - age,) * 2)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    write(2, 1, 100)
    step = importlib.import_module("reloaded_steps").step
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    reloader: Any = ModuleReloader()  # type: ignore[no-untyped-call]
    reloader.check_all = reloader.enabled = True
    reloader.check(True)
    found = [float(strategy.run(step, args=(3.0,)).values[0])]
    for n, (factor, added) in enumerate([(2, 10), (5, 10)]):
        write(factor, added, 90 - 10 * n)
        reloader.check(True)
        found.append(float(strategy.run(step, args=(3.0,)).values[0]))
    del sys.modules["reloaded_steps"]
    assert found == [7, 16, 25]


# ---- static arguments


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    rate: float


@dataclasses.dataclass
class Config:
    rate: float


EQUAL: dict[str, Callable[[], Any]] = {
    "string": lambda: str(b"ab", "ascii"),
    "enum": lambda: Colour.RED,
    "dtype": lambda: np.dtype("float32"),
    "path": lambda: Path("a/b"),
    "frozen dataclass": lambda: Frozen(0.25),
    "linen module": lambda: linen.Dense(3),
    "function made anew": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(max, 3),
    "class": lambda: Config,
}
DIFFERENT: tuple[tuple[Any, Any], ...] = (
    (Colour.RED, Colour.BLUE),
    (Frozen(0.25), Frozen(0.5)),
    (Config(0.25), Config(0.25)),
    (True, "True"),
    (lambda x: x + 1, lambda x: x + 2),
    (np.array(["a"]), np.array(["a"])),
)


def _traces(values: Sequence[Any]) -> list[Any]:
    """Runs a function with each value; returns the values that it was traced with."""
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    traced: list[Any] = []

    def step(x: Any, value: Any) -> Any:
        traced.append(value)
        return x

    for value in values:
        strategy.run(step, args=(1.0, value))
    return traced


def test_equal_objects_share_a_program() -> None:
    for kind, make in EQUAL.items():
        assert len(_traces([make(), make(), make()])) == 1, kind


def test_different_objects_have_programs_of_their_own() -> None:
    for one, other in DIFFERENT:
        traced = _traces([one, other, one])
        assert len(traced) == 2
        assert traced[0] is one
        assert traced[1] is other


def test_an_attribute_that_changes_is_unnoticed_as_in_jax_jit() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = Config(1.0)

    def step(x: Any, config: Config) -> Any:
        return x * config.rate

    for rate in (1.0, 2.0):
        config.rate = rate
        assert float(strategy.run(step, args=(1.0, config)).values[0]) == 1.0


def test_many_values_of_a_static_number_are_warned_of_by_name() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    options = dl.RunOptions(static_argnames="rate")

    def step(x: Any, rate: float) -> Any:
        return x * rate

    def train(rate: float) -> Any:
        return strategy.run(step, args=(1.0, rate), options=options)

    for n in range(4):
        train(float(n))
    with pytest.warns(RecompilationWarning, match=r"5 values of .*\(rate\)") as caught:
        train(4.0)
    assert caught[0].filename == __file__
    train(5.0)


def test_trainings_and_buckets_of_lengths_are_no_reason_to_warn() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    options, kept = dl.RunOptions(static_argnums=0), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rate in (0.1, 0.2, 0.3, 0.4):  # one run each, of variables of its own
            with strategy.scope():
                w = dl.Variable(1.0)
            kept.append(w)
            strategy.run(lambda x, w=w, rate=rate: w.assign_sub(rate * x), args=(jnp.ones(()),))
        for length in (8, 8, 16, 16, 24, 32, 40, 48):
            strategy.run(lambda n, x: jnp.ones(n).sum() + x, args=(length, 1.0), options=options)
    assert [round(float(w), 1) for w in kept] == [0.9, 0.8, 0.7, 0.6]


def test_flags_names_and_shapes_are_no_reason_to_warn() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in "abcdefgh":
            strategy.run(lambda x, name: x + len(name), args=(1.0, name))
        for rows in range(1, 7):
            for flag in (True, False):
                strategy.run(lambda x, flag: x if flag else -x, args=(np.ones(rows), flag))


@pytest.mark.filterwarnings("ignore:Python iterable:DeprecationWarning")
def test_an_argument_that_a_trace_would_use_up_is_refused() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step(source: Any) -> Any:
        return next(source)

    for value in (iter([1]), np.random.default_rng(0)):
        with pytest.raises(ArgumentTypeError, match=r"source is a .*takes from it once"):
            strategy.run(step, args=(value,))

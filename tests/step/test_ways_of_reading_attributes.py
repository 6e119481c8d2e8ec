"""What a step reads of its object in any of Python's ways, and is compiled anew for.

Each program's object makes `x * 2` at first, and `x * 4` once its number was changed.
"""

from __future__ import annotations

import argparse
import array
import dataclasses
import functools
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import attrs
import jax
import numpy as np
import pytest

import distlab as dl
from distlab.events import Compile
from distlab.recording.recorder import RingRecorder

Setter = Callable[[Any], None]


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def results(
    strategy: dl.Strategy, step: Callable[[], Any], change: Callable[[], None]
) -> list[Any]:
    """Returns what a step makes of 1.0 before and after a change, twice each."""
    found = [float(strategy.run(step(), args=(1.0,)).values[0]) for _ in range(2)]
    change()
    return found + [float(strategy.run(step(), args=(1.0,)).values[0]) for _ in range(2)]


@dataclasses.dataclass(slots=True)
class Slots:
    rate: float = 2.0

    def step(self, x: Any) -> Any:
        return x * self.rate


@attrs.define
class Attrs:
    rate: float = 2.0

    def step(self, x: Any) -> Any:
        return x * self.rate


class PrivateSlot:
    __slots__ = ("__rate",)

    def __init__(self) -> None:
        self.rate = 2.0

    @property
    def rate(self) -> float:
        return self.__rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self.__rate = rate

    def step(self, x: Any) -> Any:
        return x * self.rate


@pytest.mark.parametrize("kind", [Slots, Attrs, PrivateSlot])
def test_slots_of_a_steps_object_are_noticed(strategy: dl.Strategy, kind: type[Any]) -> None:
    trainer = kind()
    assert results(strategy, lambda: trainer.step, lambda: setattr(trainer, "rate", 4.0)) == [
        *(2.0, 2.0, 4.0, 4.0)
    ]


def test_private_slots_of_an_argument_are_noticed(strategy: dl.Strategy) -> None:
    config = PrivateSlot()
    assert strategy.run(lambda c, x: x * c.rate, args=(config, 1.0)).values[0] == 2.0
    config.rate = 4.0
    assert strategy.run(lambda c, x: x * c.rate, args=(config, 1.0)).values[0] == 4.0


class ByNames(dict[str, float]):
    """A dict with attributes, as many programs have one."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Fields:
    """As a ConfigDict."""

    def __init__(self, **fields: float) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value


class Computed:
    """Has the number under another name, behind a property and in methods."""

    def __init__(self) -> None:
        self._rate = 2.0

    @property
    def rate(self) -> float:
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate

    def scaled(self, x: Any) -> Any:
        return x * self.rate

    def __call__(self) -> float:
        return self.rate

    def __getitem__(self, name: str) -> float:
        return self.rate


CONFIGS: list[Callable[[], Any]] = [
    *(Slots, Attrs, Computed),
    lambda: SimpleNamespace(rate=2.0),
    lambda: argparse.Namespace(rate=2.0),
    lambda: ByNames(rate=2.0),
    lambda: Fields(rate=2.0),
]


def scaled_by(config: Any, x: Any) -> Any:
    return x * config.rate


def scaled_by_trainer(x: Any, *, trainer: Any) -> Any:
    return scaled_by(trainer.config, x)


class Trainer:
    def __init__(self, config: Any = None) -> None:
        self.config = config
        self.rate = 2.0

    def by_path(self, x: Any) -> Any:
        return x * self.config.rate

    def by_local(self, x: Any) -> Any:
        config = self.config
        return x * config.rate

    def by_one_of_two_locals(self, x: Any) -> Any:
        config = SimpleNamespace(rate=0.0)
        if x.ndim == 0:
            config = self.config
        return x * config.rate

    def by_choice(self, x: Any) -> Any:
        return x * (self.config if x.ndim == 0 else self).rate

    def by_nonlocal(self, x: Any) -> Any:
        config = self.config

        def inner() -> Any:
            return x * config.rate

        return inner()

    def by_list_made_here(self, x: Any) -> Any:
        for config in [self.config]:
            x = x * config.rate
        return x

    def by_helper(self, x: Any) -> Any:
        return scaled_by(self.config, x)

    def by_helpers_helper(self, x: Any) -> Any:
        return scaled_by_trainer(x, trainer=self)

    def by_own_helper(self, x: Any) -> Any:
        return self._scaled_by(self.config, x)

    def _scaled_by(self, config: Any, x: Any) -> Any:
        return x * config.rate

    def by_gradient_of_helper(self, x: Any) -> Any:
        return jax.grad(scaled_by, 1)(self.config, x)

    def by_partial_of_helper(self, x: Any) -> Any:
        return functools.partial(scaled_by, self.config)(x)

    def by_getattr(self, x: Any) -> Any:
        return x * getattr(getattr(self, "config"), "rate")  # noqa: B009


WAYS = [name for name in vars(Trainer) if name.startswith("by_")]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("way", WAYS)
def test_a_number_of_any_kind_of_config_is_noticed_in_any_way_it_is_read(
    strategy: dl.Strategy, way: str, config: Callable[[], Any]
) -> None:
    trainer = Trainer(config())
    step = getattr(Trainer, way)
    seen = results(
        strategy,
        lambda: functools.partial(step, trainer) if way == "by_helper" else getattr(trainer, way),
        lambda: setattr(trainer.config, "rate", 4.0),
    )
    assert seen == [2.0, 2.0, 4.0, 4.0]


def timed(step: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return step(*args)

    return wrapper


def named(step: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(step)(timed(step))


class OfItself:
    """Reads its own number."""

    def __init__(self) -> None:
        self.rate = 2.0
        self.functions = {"scale": lambda x: x * self.rate}
        self.bound = self.plain

    def plain(self, x: Any) -> Any:
        return x * self.rate

    @timed
    def by_decorator(self, x: Any) -> Any:
        return x * self.rate

    @named
    def by_wraps(self, x: Any) -> Any:
        return x * self.rate

    def by_vars(self, x: Any) -> Any:
        return x * vars(self)["rate"]

    def by_dict(self, x: Any) -> Any:
        return x * self.__dict__["rate"]

    def by_helper(self, x: Any) -> Any:
        return scaled_by(self, x)

    def by_hasattr(self, x: Any) -> Any:
        return x * (4.0 if hasattr(self, "is_fast") else 2.0)

    def by_function(self, x: Any) -> Any:
        return self.functions["scale"](x)

    def by_bound_method(self, x: Any) -> Any:
        return self.bound(x)


def set_rate_and_mode(trainer: Any) -> None:
    trainer.rate, trainer.is_fast = 4.0, True


@pytest.mark.parametrize("way", [name for name in vars(OfItself) if name.startswith("by_")])
def test_a_methods_own_number_is_noticed_in_any_way_it_is_read(
    strategy: dl.Strategy, way: str
) -> None:
    trainer = OfItself()
    seen = results(strategy, lambda: getattr(trainer, way), lambda: set_rate_and_mode(trainer))
    assert seen == [2.0, 2.0, 4.0, 4.0]


@pytest.mark.parametrize("way", ["scaled", "__call__", "__getitem__", "rate"])
def test_what_a_method_of_an_attribute_reads_is_noticed(strategy: dl.Strategy, way: str) -> None:
    class Step:
        def __init__(self) -> None:
            self.schedule = Computed()

        def scaled(self, x: Any) -> Any:
            return self.schedule.scaled(x)

        def __call__(self, x: Any) -> Any:
            return x * self.schedule()

        def __getitem__(self, x: Any) -> Any:
            return x * self.schedule["rate"]

        def rate(self, x: Any) -> Any:
            return x * self.schedule.rate

    step = Step()
    seen = results(
        strategy, lambda: getattr(step, way), lambda: setattr(step.schedule, "rate", 4.0)
    )
    assert seen == [2.0, 2.0, 4.0, 4.0]


def test_what_a_called_method_reads_of_a_closures_object_is_noticed(strategy: dl.Strategy) -> None:
    trainer = OfItself()
    seen = results(
        strategy, lambda: lambda x: trainer.plain(x) + 0, lambda: setattr(trainer, "rate", 4.0)
    )
    assert seen == [2.0, 2.0, 4.0, 4.0]


class Layers:
    def __init__(self, layers: Any) -> None:
        self.layers = layers

    def by_loop(self, x: Any) -> Any:
        for layer in self.layers:
            x = x * layer.rate
        return x

    def by_comprehension(self, x: Any) -> Any:
        return sum([x * layer.rate for layer in self.layers])

    def by_generator(self, x: Any) -> Any:
        return sum(x * layer.rate for layer in self.layers)

    def by_enumerate(self, x: Any) -> Any:
        for _, layer in enumerate(self.layers):
            x = x * layer.rate
        return x

    def by_zip(self, x: Any) -> Any:
        for layer, _ in zip(self.layers, [1], strict=True):
            x = x * layer.rate
        return x

    def by_index(self, x: Any) -> Any:
        return x * self.layers[0].rate

    def by_unpacking(self, x: Any) -> Any:
        (layer,) = self.layers
        return x * layer.rate

    def by_helper_in_loop(self, x: Any) -> Any:
        for layer in self.layers:
            x = scaled_by(layer, x)
        return x


@pytest.mark.parametrize("made", [list, tuple, deque])
@pytest.mark.parametrize("way", [name for name in vars(Layers) if name.startswith("by_")])
def test_numbers_of_the_elements_of_an_attribute_are_noticed(
    strategy: dl.Strategy, way: str, made: Callable[[Any], Any]
) -> None:
    model = Layers(made([SimpleNamespace(rate=2.0)]))
    seen = results(
        strategy, lambda: getattr(model, way), lambda: setattr(model.layers[0], "rate", 4.0)
    )
    assert seen == [2.0, 2.0, 4.0, 4.0]


@pytest.mark.parametrize("way", ["items", "values", "index"])
def test_numbers_of_the_objects_in_a_dict_are_noticed(strategy: dl.Strategy, way: str) -> None:
    class Model:
        def __init__(self) -> None:
            self.layers = {"first": SimpleNamespace(rate=2.0)}

        def items(self, x: Any) -> Any:
            for _, layer in self.layers.items():  # noqa: PERF102
                x = x * layer.rate
            return x

        def values(self, x: Any) -> Any:
            for layer in self.layers.values():
                x = x * layer.rate
            return x

        def index(self, x: Any) -> Any:
            return x * self.layers["first"].rate

    model = Model()
    seen = results(
        strategy, lambda: getattr(model, way), lambda: setattr(model.layers["first"], "rate", 4.0)
    )
    assert seen == [2.0, 2.0, 4.0, 4.0]


def test_an_element_that_replaces_another_one_is_noticed(strategy: dl.Strategy) -> None:
    model = Layers([SimpleNamespace(rate=2.0)])

    def change() -> None:
        model.layers[0] = SimpleNamespace(rate=4.0)

    assert results(strategy, lambda: model.by_loop, change) == [2.0, 2.0, 4.0, 4.0]


BOXES: list[Any] = [
    *({0: 2.0}, OrderedDict({0: 2.0}), defaultdict(float, {0: 2.0}), UserDict({0: 2.0})),
    *([2.0], [2.0] * 65, [2.0] * 1024, deque([2.0]), dict.fromkeys(range(100), 2.0)),
    *(Counter({0: 2}), bytearray(b"\x02"), array.array("d", [2.0])),
]


@pytest.mark.parametrize("box", BOXES, ids=lambda box: f"{type(box).__name__}-{len(box)}")
@pytest.mark.parametrize("where", ["closure", "attribute"])
def test_what_is_in_a_container_of_python_is_noticed(
    strategy: dl.Strategy, box: Any, where: str
) -> None:
    box[0] = 2

    class Held:
        def __init__(self) -> None:
            self.box = box

        def step(self, x: Any) -> Any:
            return x * self.box[0]

    held = Held()
    made: Callable[[], Any] = lambda: held.step if where == "attribute" else lambda x: x * box[0]  # noqa: E731
    assert results(strategy, made, lambda: box.__setitem__(0, 4)) == [2.0, 2.0, 4.0, 4.0]


def test_what_is_in_a_set_and_behind_a_view_of_a_dict_is_noticed(strategy: dl.Strategy) -> None:
    numbers, viewed = {2.0}, {"rate": 1.0}
    view = MappingProxyType(viewed)

    def change() -> None:
        numbers.clear()
        numbers.add(2.0)
        viewed["rate"] = 2.0

    made: Callable[[], Any] = lambda: lambda x: x * max(numbers) * view["rate"]  # noqa: E731
    assert results(strategy, made, change) == [2.0, 2.0, 4.0, 4.0]


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
def test_signs_and_nan_among_many_numbers_are_told_apart(strategy: dl.Strategy) -> None:
    numbers = [0.0] * 100

    def run() -> float:
        return float(
            strategy.run(lambda x: np.copysign(1.0, numbers[7]) * x, args=(1.0,)).values[0]
        )

    assert run() == 1.0
    numbers[7] = -0.0
    assert run() == -1.0
    numbers[7] = float("nan")
    assert run() == 1.0


class Counting:
    """Counts while it is traced, in itself, in an attribute and in what methods of these assign."""

    def __init__(self) -> None:
        self.rate = 2.0
        self.log = SimpleNamespace(lines=[], count=0)
        self.meter = Meter()
        self.cache: dict[str, Any] = {}
        self.seen: list[Any] = []

    def step(self, x: Any) -> Any:
        log = self.log
        log.count += 1
        self.meter.update()
        counted(self.meter)
        if "table" not in self.cache:
            self.cache["table"] = SimpleNamespace(rate=self.rate)
        self.seen.append(SimpleNamespace(x=x))
        return x * self.cache["table"].rate


class Meter:
    def __init__(self) -> None:
        self.count = 0

    def update(self) -> None:
        self.count += 1


def counted(meter: Meter) -> None:
    meter.count += 1


def test_what_a_step_counts_in_its_attributes_compiles_nothing_anew(
    strategy: dl.Strategy, recorder: RingRecorder
) -> None:
    counting = Counting()
    for _ in range(4):
        assert strategy.run(counting.step, args=(1.0,)).values[0] == 2.0
    compiled = [event for event in recorder.ring.since(0).events if isinstance(event, Compile)]
    assert len(compiled) == 1


def test_objects_that_refer_to_each_other_are_followed_once(
    strategy: dl.Strategy, recorder: RingRecorder
) -> None:
    class Node:
        def __init__(self, depth: int, trainer: Any) -> None:
            self.rate, self.trainer = 1.0, trainer
            self.nodes = [Node(depth - 1, trainer) for _ in range(2 if depth else 0)]

        def __call__(self, x: Any) -> Any:
            for node in self.nodes:
                x = node(x)
            return x * self.rate

        def step(self, x: Any) -> Any:
            return self.trainer(x)

    root = Node(3, None)
    for node in (root, *root.nodes):
        node.trainer = root
    change = functools.partial(setattr, root.nodes[1].nodes[0], "rate", 4.0)
    assert results(strategy, lambda: root.step, change) == [1.0, 1.0, 4.0, 4.0]
    compiled = [event for event in recorder.ring.since(0).events if isinstance(event, Compile)]
    assert len(compiled) == 2


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
def test_a_helper_that_is_defined_anew_is_read_anew(strategy: dl.Strategy) -> None:
    scope: dict[str, Any] = {}
    exec(  # as the cells of a notebook
        "class Trainer:\n"
        "    def __init__(self):\n"
        "        self.rate, self.offset = 2.0, 0.0\n"
        "    def step(self, x):\n"
        "        return helper(self, x)\n"
        "def helper(trainer, x):\n"
        "    return x * trainer.rate\n",
        scope,
    )
    trainer = scope["Trainer"]()
    assert strategy.run(trainer.step, args=(1.0,)).values[0] == 2.0
    exec("def helper(trainer, x):\n    return x * trainer.rate + trainer.offset\n", scope)
    assert strategy.run(trainer.step, args=(1.0,)).values[0] == 2.0
    trainer.offset = 1.0
    assert strategy.run(trainer.step, args=(1.0,)).values[0] == 3.0

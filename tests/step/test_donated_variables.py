"""Variables' memory: a step reuses that of old values that nobody can use any more."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.devices import jax_internals
from distlab.errors import DonatedError
from distlab.variables.storage import Storage

SIZE = 1 << 15
"""Elements of a variable whose memory nobody else gets between two steps."""


def _strategy(replicas: int) -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _variable(strategy: dl.Strategy, value: Any = 0.0, **options: Any) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(jnp.full(SIZE, value), **options)


def _memory(strategy: dl.Strategy, variable: dl.Variable) -> list[int]:
    array, _ = variable.storage.over(strategy.mesh)
    return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]


def _adds_one(*variables: dl.Variable) -> Callable[[], None]:
    def step() -> None:
        for variable in variables:
            variable.assign_add(jnp.ones(SIZE))

    return step


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_new_value_takes_over_the_memory_of_the_old_one(replicas: int) -> None:
    strategy = _strategy(replicas)
    v = _variable(strategy)
    step = _adds_one(v)
    strategy.run(step)
    before = _memory(strategy, v)
    for _ in range(40):  # past the bound of steps in flight
        strategy.run(step)
    assert _memory(strategy, v) == before
    np.testing.assert_array_equal(v.numpy(), np.full(SIZE, 41.0))


def test_each_of_several_equal_variables_keeps_its_own_memory() -> None:
    strategy = _strategy(4)
    several = [_variable(strategy, float(number)) for number in range(12)]
    unread = _variable(strategy)

    def step() -> jax.Array:
        unread.assign(several[0].value() * 2)
        for v in reversed(several):
            v.assign_add(jnp.ones(SIZE))
        return several[3].value() + 1  # as large as a variable, and the first output

    strategy.run(step)
    before = [_memory(strategy, v) for v in several]
    for _ in range(3):
        result = strategy.run(step)
    assert [_memory(strategy, v) for v in several] == before
    assert [float(v.numpy()[-1]) for v in several] == [number + 4.0 for number in range(12)]
    assert float(unread.numpy()[0]) == 6.0
    assert float(strategy.experimental_local_results(result)[0][0]) == 8.0


READS: dict[str, Callable[[dl.Variable], Any]] = {
    "value": lambda v: v.value(),
    "read_value": lambda v: v.read_value(),
    "numpy": lambda v: v.numpy(),
    "a view without a copy": lambda v: np.asarray(v.value()),
    "an array on the same device": lambda v: jax.device_put(v.value(), jax.devices()[0]),
    "a part of it": lambda v: np.asarray(v.value())[:5],
    "a copy's value": lambda v: v.values[0].value(),
    "the last copy's value": lambda v: v.values[-1].numpy(),
    "a nest": lambda v: jax.tree.map(jnp.asarray, [v])[0],
    "the stored array": lambda v: v.storage.array,
}


READS_OF_THE_FIRST_COPY = ("value", "numpy", "a view without a copy")


def test_a_read_of_the_first_copy_costs_others_nothing() -> None:
    for read in READS_OF_THE_FIRST_COPY:
        strategy = _strategy(3)
        v = _variable(strategy)
        step = _adds_one(v)
        strategy.run(step)
        before = _memory(strategy, v)
        held = READS[read](v)
        strategy.run(step)
        first, *others = _memory(strategy, v)
        assert others == before[1:]
        assert first != before[0]
        strategy.run(step)
        assert _memory(strategy, v) == [first, *others]  # nobody has read the present value
        assert float(np.asarray(held)[0]) == 1.0
        assert [float(copy.numpy()[-1]) for copy in v.values] == [3.0, 3.0, 3.0]


@functools.cache
def _several(replicas: int) -> tuple[dl.Strategy, list[dl.Variable], dict[str, Any]]:
    """Returns variables and the steps on them, which are compiled once for all examples."""
    strategy = _strategy(replicas)
    with strategy.scope():
        variables = [dl.Variable(jnp.zeros(shape)) for shape in [(), (4,), (4,), (64, 9)]]

    def adds_one() -> jax.Array:
        for v in variables:
            v.assign_add(jnp.ones(v.shape))
        return variables[1].value()

    def moves_on() -> jax.Array:
        one, other = variables[1].value(), variables[2].value()
        variables[1].assign(other)
        variables[2].assign(one)
        return one + other

    def reads() -> jax.Array:
        return variables[3].value() * 2

    return strategy, variables, {"adds": adds_one, "exchanges": moves_on, "reads": reads}


@settings(max_examples=12)
@given(
    replicas=st.sampled_from([1, 3]),
    work=st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.sampled_from(["adds", "adds", "exchanges", "reads"])),
            st.tuples(st.just("read"), st.sampled_from(sorted(READS)), st.integers(0, 3)),
            st.tuples(st.just("assign"), st.integers(0, 3), st.integers(0, 3)),
            st.tuples(st.just("copy"), st.integers(1, 2), st.integers(1, 2)),
        ),
        max_size=25,
    ),
)
def test_whatever_was_read_and_returned_stays_as_it_was(
    replicas: int, work: list[tuple[Any, ...]]
) -> None:
    strategy, variables, steps = _several(replicas)
    numbers = [0.0] * 4
    for v in variables:
        v.assign(jnp.zeros(v.shape))
    held: list[tuple[Any, float]] = []
    for kind, *what in work:
        if kind == "run":
            result = strategy.run(steps[what[0]])
            if what[0] == "adds":
                numbers = [number + 1 for number in numbers]
                expected = numbers[1]
            elif what[0] == "exchanges":
                expected = numbers[1] + numbers[2]
                numbers[1], numbers[2] = numbers[2], numbers[1]
            else:
                expected = 2 * numbers[3]
            held += [(v, expected) for v in strategy.experimental_local_results(result)]
        elif kind == "read":
            name, position = what
            if name != "a part of it" or variables[position].shape:
                held.append((READS[name](variables[position]), numbers[position]))
        elif kind == "assign":
            position, number = what
            value = jnp.full(variables[position].shape, float(number))
            variables[position].assign(value)
            numbers[position] = float(number)
            held.append((value, float(number)))
        else:
            to, of = what
            variables[to].assign(variables[of])
            numbers[to] = numbers[of]
    held += [(v.numpy(), number) for v, number in zip(variables, numbers, strict=True)]
    for value, number in held:
        array = np.asarray(value)
        np.testing.assert_array_equal(array, np.full(array.shape, number, np.float32))


def test_results_and_variables_that_are_equal_share_no_memory() -> None:
    strategy = _strategy(2)
    a, b = _variable(strategy), _variable(strategy)

    def step() -> jax.Array:
        new = a.value() + b.value() + 1
        a.assign(new)
        b.assign(new)
        return new

    results = [strategy.run(step) for _ in range(4)]
    first = [strategy.experimental_local_results(result)[0] for result in results]
    assert [float(value[0]) for value in first] == [1.0, 3.0, 7.0, 15.0]
    assert float(a.numpy()[0]) == float(b.numpy()[0]) == 15.0


def test_a_value_read_by_another_strategy_is_what_it_was() -> None:
    strategy, other = _strategy(2), dl.MirroredStrategy(["CPU:0", "CPU:3"])
    v = _variable(strategy, 1.0)
    step = _adds_one(v)
    sums = []

    def sum_of_two() -> jax.Array:
        return v.value()[:2].sum()

    for _ in range(3):
        strategy.run(step)
        sums.append(other.run(sum_of_two))
    assert [float(total.values[1]) for total in sums] == [4.0, 6.0, 8.0]


def test_a_step_with_callbacks_keeps_the_old_memory() -> None:
    strategy = _strategy(2)
    v = _variable(strategy)

    def step() -> None:
        jax.debug.callback(lambda: None)
        v.assign_add(jnp.ones(SIZE))

    strategy.run(step)
    assert isinstance(v.storage, Storage)
    before = v.storage._array
    strategy.run(step)
    assert not before.is_deleted()
    assert float(v.numpy()[0]) == 2.0


def test_a_step_that_finds_nan_leaves_the_variables_as_they_were() -> None:
    strategy = _strategy(2)
    v, w = _variable(strategy, 1.0), _variable(strategy, 0.0)

    def step(x: jax.Array) -> None:
        v.assign(v.value() * 2)
        w.assign(w.value() / x)

    strategy.run(step, args=(np.float32(1),))
    strategy.run(step, args=(np.float32(1),))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="step computed"):
        strategy.run(step, args=(np.float32(0),))
    assert (float(v.numpy()[0]), float(w.numpy()[0])) == (4.0, 0.0)
    strategy.run(step, args=(np.float32(1),))
    assert float(v.numpy()[0]) == 8.0


def test_a_deleted_argument_leaves_the_variables_unchanged() -> None:
    strategy = _strategy(2)
    v = _variable(strategy)

    def step(x: jax.Array) -> None:
        v.assign(v.value() + x)

    x = strategy.replicate(jnp.ones(SIZE))
    for _ in range(3):
        strategy.run(step, args=(x,))
    gone = strategy.replicate(jnp.ones(SIZE))
    gone.stacked.delete()
    with pytest.raises(DonatedError, match="deleted"):
        strategy.run(step, args=(gone,))
    assert float(v.numpy()[0]) == 3.0
    strategy.run(step, args=(x,))
    assert float(v.numpy()[0]) == 4.0


class _Interrupt(BaseException):
    pass


def _interrupted(work: Callable[[], object], seconds: float) -> bool:
    """Does some work that an interrupt ends, as Ctrl-C does; returns whether it came."""

    def handler(*_: Any) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _Interrupt:
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False  # where Python collects garbage, it ignores the exception


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_loop_leaves_variables_at_one_step() -> None:
    strategy = _strategy(4)
    large, other = _variable(strategy), _variable(strategy)
    with strategy.scope():
        count = dl.Variable(0.0)

    def step() -> None:
        large.assign_add(jnp.ones(SIZE))
        other.assign_add(jnp.ones(SIZE))
        count.assign_add(jnp.ones(()))

    def loop() -> None:
        for _ in range(300):
            strategy.run(step)

    strategy.run(step)
    strategy.run(step)
    interrupts = 0
    for number in range(30):
        interrupts += _interrupted(loop, 0.001 + 0.0001 * number)
        steps = float(count)
        assert float(large.numpy()[0]) == float(other.numpy()[0]) == steps
    assert interrupts > 0
    assert steps > 2


@pytest.mark.parametrize("warm", [0, 1, 3])
def test_an_interrupt_in_python_code_of_jax_loses_nothing(
    warm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _strategy(2)
    v, w = _variable(strategy), _variable(strategy, 1.0)
    step = _adds_one(v, w)
    for _ in range(warm):
        strategy.run(step)
    internals: Any = jax_internals
    executed = internals._pxla.ExecuteReplicated
    call = executed.__call__

    def interrupted(self: Any, *arrays: Any) -> Any:
        call(self, *arrays)
        raise _Interrupt

    jax.clear_caches()  # of which one spares JAX its Python code
    with monkeypatch.context() as patch:
        patch.setattr(executed, "__call__", interrupted)
        with pytest.raises(_Interrupt):
            strategy.run(step)
    strategy.run(step)
    assert (float(v.numpy()[0]), float(w.numpy()[-1])) == (warm + 1.0, warm + 2.0)


def test_another_thread_can_read_while_steps_run() -> None:
    strategy = _strategy(2)
    v = _variable(strategy)
    step = _adds_one(v)
    strategy.run(step)
    seen: list[list[float]] = []
    failures: list[Exception] = []
    done = threading.Event()

    def reader() -> None:
        try:
            while not done.is_set():
                seen.append([float(x) for x in v.numpy()[[0, -1]]])
        except Exception as error:  # noqa: BLE001 - it fails the test
            failures.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    for _ in range(100):
        strategy.run(step)
    done.set()
    thread.join(60)
    assert not failures
    assert all(first == last for first, last in seen)
    assert float(v.numpy()[0]) == 101.0

"""`observe`: each call of a jitted function is a step."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar, overload

import jax
import numpy as np

from distlab.devices import jax_internals
from distlab.errors import ArgumentTypeError
from distlab.events import sink
from distlab.observing import compilations
from distlab.observing.arguments import (
    Leaf,
    Path,
    cause_of,
    compile_event,
    described,
    distance,
    getter,
    placed_batches,
    sign,
)
from distlab.observing.compilations import Compilation, heard
from distlab.observing.program import Call, Program
from distlab.step.jaxprs import operations
from distlab.step.programs import calls
from distlab.text.shown import shown
from distlab.user_code import calling_line
from distlab.values.checks import function_name, function_source

P = ParamSpec("P")
R = TypeVar("R")

_MOST_PROBES: Final = 16
"""Most arguments by which a call's program is found."""

_MOST_SIGNS: Final = 1_000
_MOST_PROGRAMS: Final = 64


class _Read(NamedTuple):
    """The program of a call, as far as JAX shows it.

    `donated` has shapes and dtypes of the arguments that a call uses up.
    """

    compiled: Any = None
    lowered: Any = None
    executable: Any = None
    donated: frozenset[tuple[Any, Any]] = frozenset()


class _First(NamedTuple):
    """The arguments and the program of a first call, read before it changed them in place."""

    arguments: dict[str, tuple[Path, Leaf]]
    read: _Read
    arrays: list[Any]


class _Jitted(NamedTuple):
    """A jitted function without the partial or the bound method around it."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, fn: Any) -> _Jitted:
        """Returns what is inside of a callable."""
        if isinstance(fn, types.MethodType):
            return cls(fn.__func__, (fn.__self__,), {})
        if hasattr(fn, "func") and hasattr(fn, "keywords"):  # a partial of Python or a library
            inner = cls.of(fn.func)
            return cls(inner.fn, (*inner.args, *fn.args), {**inner.kwargs, **fn.keywords})
        return cls(fn, (), {})

    def read(self, args: Any, kwargs: Any, *, anew: bool) -> _Read:
        """Returns the program of a call; compiles nothing, unless `anew`."""
        if isinstance(self.fn, jax.stages.Compiled):
            return _Read(self.fn, None, self.fn.runtime_executable())
        before = heard.lowered
        lowered = self.fn.lower(*self.args, *args, **self.kwargs, **kwargs)
        if heard.lowered != before and not anew:
            return _Read()  # of other arguments than the call's, which were changed in place
        compiled = lowered.compile()
        compiled = getattr(compiled, "compiled", compiled)  # Flax and Equinox wrap both
        infos = jax.tree.leaves(getattr(lowered, "lowered", lowered).args_info)
        donated = frozenset((one.shape, np.dtype(one.dtype)) for one in infos if one.donated)
        return _Read(compiled, lowered, compiled.runtime_executable(), donated)

    def trace(self, args: Any, kwargs: Any) -> Any:
        """Returns the trace of a call; None where JAX does not show it."""
        if jax_internals.cache_size(self.fn) is None:
            return None
        return self.fn.trace(*self.args, *args, **self.kwargs, **kwargs).jaxpr.jaxpr


class Observed(Generic[P, R]):
    """A jitted function whose calls are steps; `observe` returns it.

    It has all attributes of the function, such as `lower` and `trace`.
    """

    def __init__(self, fn: Callable[P, R], name: str | None) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._fn = fn
        self._jitted = _Jitted.of(fn)
        self._name = function_name(fn) if name is None else name
        self._source = function_source(fn)
        # Objects of Flax NNX are changed in place, so after a call they may be other arguments.
        self._in_place = type(self._jitted.fn).__module__.partition(".")[0] == "flax"
        self._size = jax_internals.cache_size(self._jitted.fn)
        self._known = -1
        self._programs: list[Program] = []
        self._alone: Program | None = None
        self._traced: set[str] = set()
        self._probes: list[tuple[Callable[[Any], Any], bool]] = []
        self._signs: dict[Any, Program] = {}
        self._batches: list[Callable[[Any], Any]] = []
        self._lock = threading.RLock()

    def __reduce__(self) -> Any:
        return Observed, (self._fn, self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __repr__(self) -> str:
        return f"<observed {self._name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, and records the step."""
        recorder = sink.in_force or sink.recorder()
        if not recorder.enabled or jax_internals.being_transformed():
            return self._fn(*args, **kwargs)
        called = calls.begin()
        last = heard.last
        first = self._before_the_first(args, kwargs) if not self._programs else None
        try:
            out = self._fn(*args, **kwargs)
        except Exception as error:
            calls.emit_error(recorder, self._name, error)
            raise
        call = (out, args, kwargs)
        program = self._alone
        if (
            program is None
            or heard.last is not last
            or (self._size is not None and self._size() != self._known)
        ):
            program = self._program(call, recorder, first, compilations.longest_since(last))
            if program is None:
                return out
        examples = self._examples(call[1:]) if self._batches else 0
        step = calls.emit_step(recorder, program.number, program.strategy, called, examples)
        program.look(call, step, called, recorder)
        return out

    def _examples(self, arguments: Any) -> int:
        """Returns the number of examples of the batches among the arguments."""
        try:
            return placed_batches.examples_among([get(arguments) for get in self._batches])
        except (AttributeError, LookupError, TypeError):
            return 0

    def _before_the_first(self, args: Any, kwargs: Any) -> _First | None:
        """Reads the first program before the call, where that changes its arguments in place.

        The call uses what was compiled here. Its errors are those of the call.
        """
        if not self._in_place:
            return None
        try:
            arguments = described(self._fn, args, kwargs)
            read = self._jitted.read(args, kwargs, anew=True)
        except Exception:  # noqa: BLE001
            return None
        return _First(arguments, read, jax.tree.leaves((args, kwargs)))

    def _program(
        self, call: Call, recorder: sink.Recorder, first: _First | None, made: Compilation | None
    ) -> Program | None:
        """Returns the program that a call ran, a new one if need be; None for an unknown one.

        The call has succeeded, whatever fails here.
        """
        with self._lock:
            try:
                known = self._signs.get(self._sign(call)) if made is None else None
                return known or self._learnt(call, recorder, first, made)
            except Exception as error:  # noqa: BLE001 - of any new version of JAX
                calls.emit_unread(recorder, self._name, error)
                return None
            finally:
                if self._size is not None:
                    self._known = self._size()

    def _learnt(
        self, call: Call, recorder: sink.Recorder, first: _First | None, made: Compilation | None
    ) -> Program:
        """Returns the program of arguments that were not seen before."""
        _, args, kwargs = call
        arguments = first.arguments if first else described(self._fn, args, kwargs)
        now = self._without_traced({name: leaf for name, (_, leaf) in arguments.items()})
        read = first.read if first else self._read(args, kwargs)
        program = self._find(read, now, anew=made is not None)
        if program is None:
            before = [one for known in self._programs for one in known.described]
            changed = None if first is None else {id(one) for one in first.arrays}
            program = Program(read.executable, now, call, read.donated, changed)
            program.begin(self._name, self._source, recorder)
            self._programs = [*self._programs[1 - _MOST_PROGRAMS :], program]
            self._emit(program, read, cause_of(now, before), call, recorder, made=made)
            self._tell_apart(arguments, call)
        elif now not in program.described:
            self._add(program, now)
            self._tell_apart(arguments, call)
        if len(self._signs) >= _MOST_SIGNS:
            self._signs.clear()
        self._signs[self._sign(call)] = program
        descriptions = sum(len(one.described) for one in self._programs)
        # Who calls the function elsewhere may have it compiled for other arguments.
        all_known = self._size is not None and self._size() <= descriptions
        fixed = isinstance(self._jitted.fn, jax.stages.Compiled)
        self._alone = program if len(self._programs) == 1 and (all_known or fixed) else None
        return program

    def _read(self, args: Any, kwargs: Any) -> _Read:
        """Returns the program of a call that was made, even with arguments that it used up."""
        try:
            return self._jitted.read(args, kwargs, anew=False)
        except Exception:  # noqa: BLE001 - of any new version of JAX: steps are counted without it
            return _Read()

    def _find(self, read: _Read, now: dict[str, Leaf], *, anew: bool) -> Program | None:
        """Returns the known program of a call; JAX may have one program as several objects."""
        same = [
            one
            for one in self._programs
            if one.executable is not None and one.executable is read.executable
        ]
        if anew:
            return next(reversed(same), None)
        hidden = read.executable is None  # then only a compilation says that a number made one
        alike = [
            one
            for one in self._programs
            if any(now == old or (hidden and not distance(now, old)) for old in one.described)
        ]
        return next(reversed([*alike, *same]), None)

    def _without_traced(self, leaves: dict[str, Leaf]) -> dict[str, Leaf]:
        """Returns leaves without the values of numbers that make no program."""
        return {
            name: leaf if name not in self._traced or leaf.value is None else leaf._replace(value=0)
            for name, leaf in leaves.items()
        }

    def _add(self, program: Program, now: dict[str, Leaf]) -> None:
        """Adds the arguments of a call to those of its program: numbers that differ are traced."""
        self._traced.update(
            name
            for old in program.described
            for name, leaf in now.items()
            if name in old and old[name].value != leaf.value
        )
        for one in self._programs:
            one.described = list(map(self._without_traced, one.described))
        now = self._without_traced(now)
        if now not in program.described:
            program.described.append(now)

    def _emit(
        self,
        program: Program,
        read: _Read,
        why: tuple[str, str],
        call: Call,
        recorder: sink.Recorder,
        *,
        made: Compilation | None,
    ) -> None:
        """Emits the event of a new program."""
        if made is not None:
            compilations.explain(made, why[1] or why[0])
        called = calling_line()
        try:
            jaxpr = self._jitted.trace(*call[1:])
            event = functools.partial(
                compile_event,
                made,
                why,
                program.described[0],
                program=program.number,
                strategy=program.strategy,
                function=self._name,
                source=self._source,
                called=called,
                trains=jaxpr is None or operations.has_gradient(jaxpr),
            )
            inputs = [
                sink.Argument(name)
                for name, leaf in program.described[0].items()
                if leaf.where or leaf.value is not None  # no value that is no array
            ]
            notes = sink.ProgramNotes(inputs, lowered=read.lowered, jaxpr=jaxpr)
            recorder.compiled(event, [] if read.compiled is None else read.compiled, notes)
        except Exception as error:  # noqa: BLE001 - of any new version of JAX
            calls.emit_unread(recorder, self._name, error)

    def _tell_apart(self, arguments: dict[str, tuple[Path, Leaf]], call: Call) -> None:
        """Chooses the arguments by which a call's program is found: those in which programs differ.

        Where JAX may have programs that were not seen here, the first and the last array of each
        argument count, too.
        """
        known = [one for program in self._programs for one in program.described]
        probes = [name for name in arguments if len({one.get(name) for one in known}) > 1]
        ends: dict[Any, list[str]] = {}
        for name, (path, _) in arguments.items():
            ends.setdefault(path[:2], []).append(name)
        probes += [name for names in ends.values() for name in (names[0], names[-1])]
        self._probes = [
            (get, name not in self._traced)
            for name in list(dict.fromkeys(probes))[:_MOST_PROBES]
            if (get := getter(arguments[name][0])) is not None
        ]
        given, _ = jax.tree_util.tree_flatten_with_path(call[1:])
        paths = (path for path, leaf in given if placed_batches.examples_among([leaf]))
        self._batches = [get for path in paths if (get := getter(path)) is not None]
        self._signs.clear()

    def _sign(self, call: Call) -> Any:
        """Returns the traits of a call by which its program is found."""
        tree = call[1:]
        found: list[Any] = []
        for get, by_value in self._probes:
            try:
                leaf = get(tree)
            except (AttributeError, LookupError, TypeError):
                leaf = None
            traits = sign(leaf)
            is_number = traits is type(leaf)
            found.append((traits, leaf) if by_value and is_number else traits)
        return tuple(found)


@overload
def observe(fn: Callable[P, R], /, *, name: str | None = None) -> Observed[P, R]: ...


@overload
def observe(
    fn: None = None, /, *, name: str | None = None
) -> Callable[[Callable[P, R]], Observed[P, R]]: ...


def observe(fn: Any = None, /, *, name: str | None = None) -> Any:
    """Makes each call of a jitted function a step, like calls of `Strategy.run`.

    A recording, the dashboard, widgets, captures and advice then show a program of plain JAX: each
    call, each compilation with its cause, and how busy each device is. The devices are those of
    the mesh on which the function runs. It takes some microseconds a call, and nothing on the
    devices; arguments are donated, and calls return before the devices are done, as without it.
    Inside of `jit`, `grad` or `vmap` it is the bare function.

    Steps whose whole result is donated to the next call mostly have no ready times: captures
    show how busy the devices are. Return a loss, or anything else that stays.

    Args:
      fn: A function of `jax.jit`, `nnx.jit`, `eqx.filter_jit` or `jax.pmap`, with `shard_map`
        inside or without, or a `jax.stages.Compiled`. Leave it out for a decorator with a name.
      name: The function's name on pages; by default its own.

    Returns:
      A function that takes the same arguments and returns the same result, with all attributes of
      `fn`, such as `lower` and `trace`.

    Raises:
      ArgumentTypeError: `fn` is not jitted, or `name` is not a string.

    Example:
      >>> import distlab as dl, jax, jax.numpy as jnp
      >>> @dl.observe
      ... @jax.jit
      ... def step(w, x):
      ...     loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - 1) ** 2))(w)
      ...     return w - 0.1 * gradient, loss
      >>> w, x = jnp.zeros(3), jnp.ones((4, 3))
      >>> with dl.record("runs/plain"):
      ...     for _ in range(5):
      ...         w, loss = step(w, x)
      >>> dl.Run.open("runs/plain").summary()["steps"]
      5
    """
    if name is not None and not isinstance(name, str):
        raise ArgumentTypeError(f"name must be a string, got {shown(name)}. Leave it out.")
    if fn is None:
        return functools.partial(observe, name=name)
    if isinstance(fn, Observed):
        return fn
    jitted = _Jitted.of(fn).fn
    if not isinstance(jitted, jax.stages.Compiled) and not callable(getattr(jitted, "lower", None)):
        raise ArgumentTypeError(
            f"observe accepts a jitted function, got {shown(fn)}. Pass jax.jit(fn); as a "
            "decorator, write @dl.observe above @jax.jit."
        )
    compilations.listen()
    return Observed(fn, name)

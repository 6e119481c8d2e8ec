"""Every program that JAX compiles, without a change of the code that has it compiled.

All ways to jit compile by one method of JAX, which has no public name. Where a version of JAX
lacks it, programs are not read: their compilations are heard all the same.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final, NamedTuple

import jax
from jax.sharding import NamedSharding

from distlab import events
from distlab.devices import jax_internals, selection
from distlab.events import numbering, sink
from distlab.meshes.blocks import full_spec, spec_text
from distlab.observing import compilations
from distlab.observing.arguments import Leaf, cause_of, compile_event
from distlab.observing.compilations import Compilation, heard
from distlab.observing.meshes import mesh_of, strategy_of
from distlab.user_code import calling_line, line_text, part_of

_JAX: Final = Path(jax.__file__).parent
_BEFORE: Final = 16
"""Programs of a function with which a new one is compared."""


class _Signature(NamedTuple):
    name: str
    file: str
    line: int
    arguments: list[str]  # The names of those that the program takes
    donated: list[bool]

    @property
    def is_jax_own(self) -> bool:
        """True for an operation of JAX; the program of a `pmap` counts as the user's."""
        file = Path(self.file)
        return _JAX in file.parents and file.name != "pmap.py"

    @property
    def source(self) -> str:
        """Its line, where the user's code defines it."""
        return "" if _JAX in Path(self.file).parents else line_text(self.file, self.line)


_lock: Final = threading.RLock()
_asked = 0
_end: Callable[[], object] = lambda: None  # noqa: E731
_known: Final[dict[tuple[str, str], deque[dict[str, Leaf]]]] = defaultdict(
    partial(deque, maxlen=_BEFORE)
)


def begin() -> None:
    """Reads programs from here on, until `end` is called as often."""
    global _asked, _end
    compilations.listen()
    with _lock:
        _asked += 1
        if _asked == 1:
            _known.clear()
            _end = _on_each_compilation()


def end() -> None:
    """Reads no more programs, unless another recording asks for them."""
    global _asked
    with _lock:
        _asked -= 1
        if not _asked:
            _end()


def _on_each_compilation() -> Callable[[], object]:
    """Has `_note` called after each compilation; returns what ends that."""
    compiles = getattr(jax_internals.Computation, "compile", None)
    if compiles is None:
        return lambda: None

    def compile_and_note(self: Any, *args: Any, **options: Any) -> Any:
        executable = compiles(self, *args, **options)
        with suppress(Exception):  # it would end the user's compilation
            _note(self, executable)
        return executable

    jax_internals.Computation.compile = compile_and_note
    return lambda: setattr(jax_internals.Computation, "compile", compiles)


def _note(computation: Any, executable: Any) -> None:
    """Emits a program that was compiled in this thread, unless it is one of JAX or distlab."""
    newest, noted = heard.last, heard.noted
    heard.noted = newest
    name = compilations.plain_name(str(computation._name))
    if newest is None or noted is newest or name != newest.name:
        return  # JAX had it
    recorder = sink.recorder()
    try:
        signature = _signature(computation)
        if not signature.is_jax_own and not _is_ours(sys._getframe(1)):
            _emit(executable, signature, newest, recorder)
    except Exception as error:  # noqa: BLE001 - of any new version of JAX
        reason = f"The program of {name} could not be read: {type(error).__name__}: {error}"
        recorder.emit(events.Lost(time_ns=time.monotonic_ns(), count=1, reason=reason[:2_000]))


def _emit(
    executable: Any, signature: _Signature, newest: Compilation, recorder: sink.Recorder
) -> None:
    """Emits the event of a program that JAX has just compiled."""
    given, made = list(executable._in_shardings), list(executable._out_shardings)
    leaves = map(_leaf, executable.in_avals, given)
    described = dict(zip(signature.arguments, leaves, strict=True))
    with _lock:
        before = _known[signature.name, signature.source]
        why = cause_of(described, list(before))
        before.append(described)
    compilations.explain(newest, why[1] or why[0])
    event = partial(
        compile_event,
        newest,
        why,
        described,
        program=next(numbering.programs),
        strategy=strategy_of(mesh_of([*given, *made]), recorder),
        function=signature.name,
        source=signature.source,
        called=calling_line(),
    )
    infos = [
        SimpleNamespace(shape=aval.shape, dtype=aval.dtype, donated=donated)
        for aval, donated in zip(executable.in_avals, signature.donated, strict=True)
    ]
    shown = SimpleNamespace(
        as_text=executable.as_text,
        cost_analysis=executable.cost_analysis,
        memory_analysis=executable.memory_analysis,
        args_info=(tuple(infos), {}),
        input_shardings=given,
        out_info=tuple(executable.out_avals),
        output_shardings=made,
    )
    recorder.compiled(event, shown)


def _signature(computation: Any) -> _Signature:
    about = computation.compile_args["all_args_info"]
    function, names = about.debug_info, list(about.debug_info.arg_names or ())
    constants = len(computation.const_args)  # arrays that it closes over come first
    count = len(about.in_avals) - constants
    if len(names) != count:
        names = [f"args[{number}]" for number in range(count)]
    named = [*(f"constant {number}" for number in range(constants)), *names]
    kept = sorted(computation.compile_args["kept_var_idx"])
    file, _, line = str(function.func_src_info).rpartition(" at ")[2].rpartition(":")
    name = "pmap" if Path(file).name == "pmap.py" else str(function.func_name)
    donated = [bool(computation._donated_invars[number]) for number in kept]
    return _Signature(name, file, int(line or 0), [named[number] for number in kept], donated)


def _leaf(aval: Any, sharding: Any) -> Leaf:
    what = f"{aval.dtype}[{', '.join(map(str, aval.shape))}]"
    if isinstance(sharding, NamedSharding):
        return Leaf(what, spec_text(full_spec(sharding.spec, aval.ndim)))
    devices = jax_internals.assigned_devices(sharding)
    return Leaf(what, selection.name(devices[0]) if len(devices) == 1 else "")


def _is_ours(frame: FrameType | None) -> bool:
    """Returns whether distlab has it compiled, which reports its programs and observed ones."""
    while frame is not None:
        if part_of(frame) == "distlab" and frame.f_code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False

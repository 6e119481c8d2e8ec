"""Checkpoints of objects: `tf.train.Checkpoint`'s names on Orbax."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np

from distlab.devices import in_flight, jax_internals
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointMismatchError,
    ContextError,
)
from distlab.integrations.orbax import files, workers
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.integrations.orbax.jobs import Job
from distlab.integrations.orbax.kinds import Kind, Position, Put
from distlab.integrations.orbax.options import absolute_name, checked
from distlab.integrations.orbax.status import CheckpointLoadStatus, listed
from distlab.integrations.orbax.unchanged import Unchanged
from distlab.integrations.orbax.walk import kind_of, walk
from distlab.text.counts import is_count
from distlab.text.flags import flag_refusal
from distlab.text.shown import shown, shown_text
from distlab.uncopied import Uncopied
from distlab.user_code import warn
from distlab.variables import frames
from distlab.variables.variable import Variable

used_folders: Final[set[Path]] = set()
"""The folders in which this program has written or restored checkpoints."""

_COUNTER: Final = "save_counter"


class Checkpoint(Uncopied):
    """Saves objects to a folder, and restores them under any strategy (`tf.train.Checkpoint`).

    What is given by name is saved: variables, arrays, per-replica values, numbers, strings,
    iterators, nests of these, objects with attributes that are these, Flax NNX and Keras objects.
    A value that all replicas hold is stored once, an ON_READ variable as its total or mean, an
    iterator as its position. So a checkpoint that was saved on 8 replicas is restored on 3, on
    one or without a strategy. With several workers all of them call `save` and `restore`, in one
    order; the chief writes, and the others return when it has, leaving no file.

    Variables, iterators and attributes of objects are restored in place. What can't be changed,
    such as an array or a number, is replaced: read it as an attribute of the checkpoint
    afterwards. Numbers, strings and NumPy arrays that are attributes of an object are its
    settings, and not saved.

    Args:
      root: An object whose parts are saved without a name in front; optional.
      **kwargs: What to save, by name.

    Attributes:
      save_counter: The number of times that `save` was called; saved and restored, too.

    Raises:
      ArgumentValueError: A name is one of this class's own.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weights = dl.Variable([1.0, 2.0])
      >>> checkpoint = dl.train.Checkpoint(weights=weights, epoch=4)
      >>> path = checkpoint.save("checkpoints/ckpt")
      >>> _ = weights.assign([0.0, 0.0])
      >>> checkpoint.epoch = 0
      >>> _ = checkpoint.restore(path)
      >>> weights.numpy().tolist(), checkpoint.epoch
      ([1.0, 2.0], 4)
    """

    _uncopied = (
        "A Checkpoint can't be copied or pickled: a copy would share its objects and not their "
        "number. Make another one of the same objects, dl.train.Checkpoint(...), and save it to "
        "pass on what they hold."
    )

    save_counter: int

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        own: dict[str, Any] = self.__dict__
        own.update(_root=root, _parts={}, _job=None, save_counter=0, _lock=threading.RLock())
        own["_unchanged"] = Unchanged()
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Returns an object by its name."""
        parts = self.__dict__.get("_parts", {})
        if name not in parts:
            raise AttributeError(f"The checkpoint has no {name}. It has {list(parts)}.")
        return parts[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Adds or replaces an object."""
        if name == _COUNTER:
            if not is_count(value):
                raise ArgumentTypeError(
                    f"{name} must be a whole number of at least 0, got {shown(value)}. Leave it "
                    "alone: save counts it up."
                )
            self.__dict__[name] = value
        elif hasattr(type(self), name) or name.startswith("_"):
            raise ArgumentValueError(
                f"A checkpoint has {name} itself, so no object can have that name. Choose another."
            )
        else:
            if name in self._parts:
                self._unchanged.forget()
            self.__dict__["_parts"][name] = value

    def __delattr__(self, name: str) -> None:
        """Forgets an object: it is not saved any more."""
        if name in self.__dict__ or hasattr(type(self), name):
            raise ArgumentValueError(
                f"A checkpoint has {name} itself, which can't be deleted. Leave it alone; what "
                f"can be deleted are its objects: {list(self._parts)}."
            )
        getattr(self, name)  # says so where there is none
        del self._parts[name]

    def __dir__(self) -> list[str]:
        """Lists the objects, too."""
        return [*super().__dir__(), *self._parts]

    def save(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Writes the objects to `<file_prefix>-<save_counter>`.

        Args:
          file_prefix: The path of the folder without the number.
          options: A `CheckpointOptions`.

        Returns:
          The folder's path, for `restore`.

        Raises:
          CheckpointError: The disk is full, or the folder is a file. `save_counter` is as before.
          ArgumentTypeError: An object can't be saved.

        Warns:
          RuntimeWarning: Nothing but plain values is saved, such as arrays and numbers, and the
            second save finds those of the first one.

        Example:
          >>> import distlab as dl
          >>> checkpoint = dl.train.Checkpoint(step=1)
          >>> checkpoint.save("checkpoints/ckpt").endswith("checkpoints/ckpt-1")
          True
        """
        absolute_name(file_prefix)  # refuses what is no path, before anything is counted
        with self.one_at_a_time:
            before = self.save_counter
            self.save_counter = before + 1
            try:
                return self.write(f"{os.fspath(file_prefix)}-{self.save_counter}", options)
            except BaseException:
                self.save_counter = before
                raise

    def write(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Writes the objects to a folder of that name, which replaces a checkpoint that is there.

        Args:
          file_prefix: The path of the folder.
          options: A `CheckpointOptions`.

        Returns:
          The folder's path, for `read`.

        Raises:
          CheckpointError: The disk is full, or the folder is a file.
          ArgumentTypeError: An object can't be saved.

        Warns:
          RuntimeWarning: Nothing but plain values is saved, such as arrays and numbers, and the
            second save finds those of the first one.

        Example:
          >>> import distlab as dl
          >>> path = dl.train.Checkpoint(step=1).write("checkpoints/last")
          >>> later = dl.train.Checkpoint(step=0)
          >>> _ = later.read(path)
          >>> later.step
          1
        """
        return self.write_within(file_prefix, options, nullcontext)

    def write_within(
        self,
        file_prefix: str | os.PathLike[str],
        options: Any,
        context: Callable[[], AbstractContextManager[None]],
    ) -> str:
        """Writes as `write` does, within a context of the thread and the process that write."""
        in_background = checked(options).in_background
        path = absolute_name(file_prefix)
        files.require_orbax()
        with self.one_at_a_time:
            self.sync()
            state = self._snapshot()
            if self._unchanged.is_second_of([self._root, self._parts]):
                warn(
                    "A checkpoint saves the values that it was given, and none of "
                    f"{listed(list(self._parts))} is another one at this second save. Where a step "
                    "returns new values, assign them before each save: checkpoint.state = state.",
                    RuntimeWarning,
                )

            def write_it() -> None:
                with context():
                    files.write(path, state)

            write = workers.writing(write_it)
            if in_background:
                self.__dict__["_job"] = Job(write)
            else:
                write()
            used_folders.add(path.parent)
        return str(path)

    def restore(
        self,
        save_path: str | os.PathLike[str] | None,
        options: Any = None,
        *,
        partial: bool = False,
    ) -> CheckpointLoadStatus:
        """Restores the objects from a checkpoint.

        Either all objects are restored, or an error says why not and none is changed. Names in the
        checkpoint that this one was not given are passed over, such as an optimizer's.

        Args:
          save_path: The result of `save` or `write`; None restores nothing.
          options: Ignored; accepted for compatibility with TensorFlow.
          partial: Whether to restore the names that both have, one at least, where either lacks
            some. What both have must fit as without it.

        Returns:
          A status with TensorFlow's assertions.

        Raises:
          NotFoundError: There is no such checkpoint.
          DataLossError: It is damaged.
          CheckpointMismatchError: It is one of other objects; the message lists the names and
            shapes that differ.

        Example:
          >>> import distlab as dl
          >>> path = dl.train.Checkpoint(weights=dl.Variable([1.0, 2.0])).save("checkpoints/ckpt")
          >>> weights = dl.Variable([0.0, 0.0])
          >>> status = dl.train.Checkpoint(weights=weights).restore(path)
          >>> status.assert_consumed().unused, weights.numpy().tolist()
          ((), [1.0, 2.0])
        """
        del options
        if refusal := flag_refusal("partial", partial):
            raise ArgumentTypeError(refusal)
        if save_path is None:
            return CheckpointLoadStatus(0, (), (), given=False)
        _require_outside("restore")
        with self.one_at_a_time:
            return self._restore(absolute_name(save_path), partial=partial)

    def _restore(self, path: Path, *, partial: bool) -> CheckpointLoadStatus:
        self.sync()
        entries = files.entries(path)
        here = self._leaves()
        unused = sorted(set(entries) - set(here) - {_COUNTER})
        missing = sorted(set(here) - set(entries))
        self._require_fit(
            path, entries, here, [] if partial else unused, [] if partial else missing
        )
        if here and len(missing) == len(here):
            raise CheckpointMismatchError(
                f"{path} has none of the objects' names: it has {listed(unused)}, and the "
                f"Checkpoint {listed(missing)}. Nothing was restored. Give the objects the names "
                "with which they were saved."
            )
        arrays = files.arrays(path, entries, set(here) & set(entries))
        _require_one_value(path, here, entries, arrays)
        self._put(here, entries, arrays)
        used_folders.add(path.parent)
        return CheckpointLoadStatus(len(here) - len(missing), tuple(unused), tuple(missing))

    def read(
        self, save_path: str | os.PathLike[str], options: Any = None, *, partial: bool = False
    ) -> CheckpointLoadStatus:
        """Restores what `write` wrote; takes, returns and raises what `restore` does."""
        return self.restore(save_path, options, partial=partial)

    def sync(self) -> None:
        """Waits for the thread that writes a checkpoint, if there is one.

        Raises:
          CheckpointError: It could not write.
        """
        with self.one_at_a_time:
            job, self.__dict__["_job"] = self._job, None
            if job is not None:
                job.wait()

    @property
    def one_at_a_time(self) -> AbstractContextManager[object, None]:
        """Held by the thread that saves or restores."""
        lock: AbstractContextManager[object, None] = self._lock
        return lock

    def checkpoint_parts(self) -> dict[str, Any]:
        """Returns the objects by name, for a checkpoint that this one is a part of."""
        return dict(self._parts)

    def replace_part(self, name: str, value: Any) -> None:
        """Replaces an object."""
        self._parts[name] = value

    def _walk(self, visit: Callable[[str, Any], Any]) -> None:
        if self._root is not None:
            self.__dict__["_root"] = walk(self._root, "", visit)
        walk(self, "", visit)

    def _leaves(self) -> dict[str, Any]:
        """Returns the leaves by name."""
        found: dict[str, Any] = {}

        def note(name: str, leaf: Any) -> Any:
            if name in found and found[name] is not leaf:
                raise ArgumentValueError(
                    f"Two values of the checkpoint are called {name}. Rename the key of one."
                )
            found[name] = leaf
            return leaf

        self._walk(note)
        for name, part in self._parts.items():
            if not any(_is_below(leaf, name) for leaf in found) and not _is_empty(part):
                raise ArgumentTypeError(
                    f"{name} is {shown(part)}, which holds nothing that can be saved. Give its "
                    "variables or its state: for an Optax optimizer optimizer.init(params), for a "
                    "dataset iter(dataset)."
                )
        return found

    def _positions(self) -> dict[str, Any]:
        """Returns the iterators by name."""
        return {name: leaf for name, leaf in self._leaves().items() if _is_position(leaf)}

    def _snapshot(self) -> dict[str, Saved]:
        """Returns copies of all values, as they are between two steps."""
        _require_outside("save")
        # Before steps have to wait: an iterator's data may come from functions that run some.
        found = self._leaves().items()
        state = {n: _kind(leaf).saved(n, leaf) for n, leaf in found if _is_position(leaf)}
        with in_flight.dispatching:
            for name, leaf in self._leaves().items():
                if not _is_position(leaf):
                    state[name] = _kind(leaf).saved(name, leaf)
        state = workers.with_all_positions(state, files.plain)
        return {_COUNTER: Saved(Entry("python", value=self.save_counter)), **state}

    def _claims(self, name: str = "", inside: tuple[Checkpoint, ...] = ()) -> Iterator[str]:
        """Yields the names of objects that must take all that was saved below these names."""
        if self._root is not None:
            yield name
        for part, value in self._parts.items():
            full = f"{name}/{part}" if name else part
            if not isinstance(value, Checkpoint):
                yield full
            elif value is not self and value not in inside:  # a part may know its whole
                yield from value._claims(full, (*inside, self))

    def _require_fit(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        here: Mapping[str, Any],
        unused: list[str],
        missing: list[str],
    ) -> None:
        """Checks that what was saved fits the objects."""
        claims = list(self._claims())
        surplus = [name for name in unused if any(_is_below(name, claim) for claim in claims)]
        found = {n: _kind(here[n]).fault(here[n], entries[n]) for n in here if n in entries}
        wrong = {name: fault for name, fault in found.items() if fault}
        faults = [
            *(f"{name} {fault}" for name, fault in wrong.items()),
            *(f"{name} is not in the checkpoint" for name in missing),
            *(f"{name}, {entries[name]}, is in the checkpoint alone" for name in surplus),
        ]
        if not faults:
            return
        remedy = "Make the objects as they were when it was saved"
        names_differ = bool(missing or surplus)
        if names_differ:
            remedy += ", and build a Keras optimizer first"
        if not wrong:
            remedy += "; partial=True restores the names that both have."
        else:
            # A name that is left out is one that the checkpoint alone has, which is an error where
            # an object has to take all that was saved below its own name.
            lacks = any(_is_below(n, claim) and n != claim for n in wrong for claim in claims)
            remedy += f", or leave out of the Checkpoint what does not fit ({listed(list(wrong))})"
            remedy += " and pass partial=True." if names_differ or lacks else "."
        hints = {_kind(here[name]).hint(here[name], entries[name]): None for name in wrong}
        raise CheckpointMismatchError(
            f"{path} does not fit the objects: {listed(faults, '; ')}. Nothing was restored. "
            + " ".join([remedy, *filter(None, hints)])
        )

    def _put(
        self, here: Mapping[str, Any], entries: Mapping[str, Entry], arrays: Mapping[str, Any]
    ) -> None:
        """Places all values, then moves the iterators, which may fail, then puts all in place."""
        puts = {
            name: _kind(leaf).placed(leaf, entries[name], arrays.get(name))
            for name, leaf in here.items()
            if name in entries
        }
        positions = {name: here[name] for name in puts if _is_position(here[name])}
        _move(positions, {name: puts.pop(name) for name in positions})
        with in_flight.dispatching:
            self._walk(lambda name, leaf: puts[name]() if name in puts else leaf)
        if _COUNTER in entries:
            self.save_counter = entries[_COUNTER].value


def _require_one_value(
    path: Path, here: Mapping[str, Any], entries: Mapping[str, Entry], arrays: Mapping[str, Any]
) -> None:
    """Checks that a variable which has several names had one value when it was saved."""
    first: dict[int, str] = {}
    for name, leaf in here.items():
        if name not in entries or not isinstance(leaf, Variable):
            continue
        before = first.setdefault(id(leaf), name)
        if before != name and not _alike(name, before, entries, arrays):
            raise CheckpointMismatchError(
                f"{before} and {name} are one variable here, and have different values in {path}. "
                "Nothing was restored. Give each name a variable of its own, as when they were "
                "saved."
            )


def _alike(one: str, other: str, entries: Mapping[str, Entry], arrays: Mapping[str, Any]) -> bool:
    if entries[one] != entries[other] or (one in arrays) != (other in arrays):
        return False
    if one not in arrays:
        return True
    return np.asarray(arrays[one]).tobytes() == np.asarray(arrays[other]).tobytes()


def _kind(leaf: Any) -> Kind:
    kind = kind_of(leaf)
    assert kind is not None  # `walk` visits leaves alone
    return kind


def _is_position(leaf: Any) -> bool:
    return isinstance(_kind(leaf), Position)


def _move(iterators: Mapping[str, Any], moves: Mapping[str, Put]) -> None:
    """Moves all iterators, or none."""
    before: list[tuple[Any, Any]] = []
    for name, iterator in iterators.items():
        before.append((iterator, iterator.get_state()))
        try:
            moves[name]()
        except Exception as error:
            for moved, state in before:
                moved.set_state(state)
            raise CheckpointMismatchError(
                f"{name} can't go to the saved position: {shown_text(error):.300} Nothing was "
                "restored. Make the dataset, and distribute it, as when the checkpoint was saved."
            ) from error


def _require_outside(verb: str) -> None:
    """Checks that this is no replica function, no other that is being traced, and no fork."""
    in_flight.require_not_forked()
    if frames.current() is not None or jax_internals.being_staged():
        raise ContextError(
            f"Checkpoint.{verb} was called in a function that replicas run, or that JAX traces. "
            "Call it between the steps, outside of strategy.run and jax.jit."
        )


def _is_below(name: str, claim: str) -> bool:
    return not claim or name == claim or name.startswith(f"{claim}/")


def _is_empty(part: Any) -> bool:
    """Returns whether an object is a nest without values, in which there is nothing to miss."""
    if part is None or isinstance(part, Checkpoint):
        return True
    return isinstance(part, dict | list | tuple) and all(map(_is_empty, _values(part)))


def _values(part: Any) -> list[Any]:
    return list(part.values()) if isinstance(part, dict) else list(part)

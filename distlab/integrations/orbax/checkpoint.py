"""Checkpoints of objects: `tf.train.Checkpoint`'s names on Orbax."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import jax

from distlab.devices import in_flight, jax_internals
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointMismatchError,
    ContextError,
)
from distlab.integrations.orbax import files, workers
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.integrations.orbax.kinds import Kind, Put, is_position, kind_of
from distlab.integrations.orbax.status import CheckpointLoadStatus, CheckpointOptions, listed
from distlab.integrations.orbax.walk import give_later, is_unbuilt_optimizer, walk
from distlab.text.shown import shown, shown_text
from distlab.variables import frames

_COUNTER: Final = "save_counter"


class Checkpoint:
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

    save_counter: int
    one_at_a_time: AbstractContextManager[object, None]

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        own: dict[str, Any] = self.__dict__
        own.update(_root=root, _parts={}, _job=None, save_counter=0)
        own["one_at_a_time"] = threading.RLock()
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
            self.__dict__[name] = value
        elif hasattr(type(self), name) or name in self.__dict__:
            raise ArgumentValueError(
                f"A checkpoint has {name} itself, so no object can have that name. Choose another."
            )
        else:
            self._parts[name] = value

    def __delattr__(self, name: str) -> None:
        """Removes an object: it is not saved any more."""
        getattr(self, name)  # raises where there is none
        del self._parts[name]

    def save(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Writes the objects to `<file_prefix>-<save_counter>`.

        Args:
          file_prefix: The path of the folder without the number.
          options: A `CheckpointOptions`.

        Returns:
          The folder's path, for `restore`.

        Raises:
          CheckpointError: The disk is full, or the folder is a file.
          ArgumentTypeError: An object can't be saved.

        Example:
          >>> import distlab as dl
          >>> checkpoint = dl.train.Checkpoint(step=1)
          >>> checkpoint.save("checkpoints/ckpt").endswith("checkpoints/ckpt-1")
          True
        """
        files.absolute(file_prefix)
        with self.one_at_a_time:
            self.save_counter += 1  # a save that fails, or is interrupted, uses its number up
            return self.write(f"{os.fspath(file_prefix)}-{self.save_counter}", options)

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

        Example:
          >>> import distlab as dl
          >>> path = dl.train.Checkpoint(step=1).write("checkpoints/last")
          >>> later = dl.train.Checkpoint(step=0)
          >>> _ = later.read(path)
          >>> later.step
          1
        """
        path = files.absolute(file_prefix)
        self.write_by(lambda state: files.write(path, state), options)
        return str(path)

    def write_by(self, write: Callable[[dict[str, Saved]], None], options: Any) -> None:
        """Has a function write the objects, in a thread if the options ask for one."""
        in_background = (options or CheckpointOptions()).in_background
        files.orbax()
        with self.one_at_a_time:
            self.sync()
            state = self._snapshot()
            job = workers.writing(lambda: write(state))
            if in_background and workers.IN_BACKGROUND:
                self.__dict__["_job"] = workers.Job(job)
            else:
                job()

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
        if save_path is None:
            return CheckpointLoadStatus(0, (), (), given=False)
        _require_outside("restore")
        with self.one_at_a_time:
            return self._restore(files.absolute(save_path), partial=partial)

    def _restore(self, path: Path, *, partial: bool) -> CheckpointLoadStatus:
        self.sync()
        entries = files.entries(path)
        self._leaves()  # builds the optimizers of models, which may have a name of their own
        here = self._leaves()
        later = self._later(set(entries) - set(here))
        unused = sorted(set(entries) - set(here) - set(later) - {_COUNTER})
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
        arrays = files.arrays(path, entries, {*later, *set(here) & set(entries)})
        self._put(here, entries, arrays)
        for name, (optimizer, number) in later.items():
            give_later(optimizer, number, arrays[name])
        return CheckpointLoadStatus(len(here) - len(missing), tuple(unused), tuple(missing))

    def _later(self, names: Collection[str]) -> dict[str, tuple[Any, int]]:
        """Returns the variables that Keras' optimizers make in their first step, by name."""
        found: dict[str, tuple[Any, int]] = {}
        for name, value in self._objects():
            if is_unbuilt_optimizer(value):
                below = [one for one in names if _is_below(one, name)]
                numbers = {one: one.removeprefix(f"{name}/") for one in below}
                found |= {one: (value, int(n)) for one, n in numbers.items() if n.isdecimal()}
        return found

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
    def checkpoint_parts(self) -> dict[str, Any]:
        """The objects by name."""
        parts: dict[str, Any] = self._parts
        return parts

    def _walk(self, visit: Callable[[str, Any], Any]) -> None:
        if self._root is not None:
            self.__dict__["_root"] = walk(self._root, "", visit)
        walk(self, "", visit)

    def _leaves(self) -> dict[str, Any]:
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

    def _snapshot(self) -> dict[str, Saved]:
        """Returns copies of all values, as they are between two steps."""
        _require_outside("save")
        # Before steps have to wait: an iterator's data may come from functions that run some.
        found = self._leaves().items()
        state = {n: _kind(leaf).saved(n, leaf) for n, leaf in found if is_position(leaf)}
        with in_flight.dispatching:
            for name, leaf in self._leaves().items():
                if not is_position(leaf):
                    saved = _kind(leaf).saved(name, leaf)
                    state[name] = saved if workers.is_writer() else Saved(saved.entry)
        state = workers.with_all_positions(state, files.plain)
        return {_COUNTER: Saved(Entry("python", value=self.save_counter)), **state}

    def _objects(
        self, name: str = "", inside: tuple[Checkpoint, ...] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Yields the objects that must take all that was saved below their names."""
        if self._root is not None:
            yield name, self._root
        for part, value in self._parts.items():
            full = f"{name}/{part}" if name else part
            if not isinstance(value, Checkpoint):
                yield full, value
            elif value is not self and value not in inside:  # a part may know its whole
                yield from value._objects(full, (*inside, self))

    def _require_fit(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        here: Mapping[str, Any],
        unused: list[str],
        missing: list[str],
    ) -> None:
        """Checks that what was saved fits the objects."""
        claims = [name for name, _ in self._objects()]
        surplus = [name for name in unused if any(_is_below(name, claim) for claim in claims)]
        found = {n: _kind(here[n]).fault(here[n], entries[n]) for n in here if n in entries}
        faults = [
            *(f"{name} {fault}" for name, fault in found.items() if fault),
            *(f"{name} is not in the checkpoint" for name in missing),
            *(f"{name}, {entries[name]}, is in the checkpoint alone" for name in surplus),
        ]
        if not faults:
            return
        raise CheckpointMismatchError(
            f"{path} does not fit the objects: {listed(faults, '; ')}. Nothing was restored. Make "
            "the objects as they were when it was saved, and build a LossScaleOptimizer first; "
            "partial=True restores the names that both have."
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
        positions = {name: here[name] for name in puts if is_position(here[name])}
        _move(positions, {name: puts.pop(name) for name in positions})
        with in_flight.dispatching:
            self._walk(lambda name, leaf: puts[name]() if name in puts else leaf)
        if _COUNTER in entries:
            self.save_counter = entries[_COUNTER].value


def _kind(leaf: Any) -> Kind:
    kind = kind_of(leaf)
    assert kind is not None  # `walk` visits leaves alone
    return kind


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
    return isinstance(part, Checkpoint) or not jax.tree.leaves(part)

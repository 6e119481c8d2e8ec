"""The verbs of `Dataset` that keep elements: in memory, or in files."""

# ruff: noqa: ARG002, ARG003 - tf.data's parameters

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distlab.data.plan.arguments import no_end
from distlab.data.plan.iterator import Elements
from distlab.data.plan.plan import INFINITE_CARDINALITY
from distlab.data.transforms.cache import FileCache, in_memory, recorded
from distlab.data.transforms.cache_file import CacheFile, Recording, Saved
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import ArgumentValueError, InvalidArgumentError, UnsupportedError
from distlab.io._files import path_of
from distlab.text.paths import path_refusal


class StorageVerbs(Planned[DatasetT]):
    """The verbs that keep elements."""

    def cache(self, filename: Any = "", name: str | None = None) -> DatasetT:
        """Keeps the elements of the first iteration for the later ones.

        They count once an iteration has reached the end, so cache a dataset before
        `repeat` and `take`, not after. A shuffle before has the same order from then on.
        Elements that arrays hold in memory anyway are not kept twice. Files are read
        instead of the dataset, also by a program whose functions have changed: delete
        them then.

        Args:
          filename: What the names of the files to keep them in begin with; they stay
            for later programs. Empty for memory.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: `filename` is not a name. During iteration, the file has
            elements of another structure.
          DataLossError: During iteration, the file is damaged or cut off.
          StructureError: During iteration, elements can't be kept in a file: datasets,
            or arrays whose dtype has fields.

        Example:
          >>> import distlab as dl
          >>> def load(x):
          ...     print("loading", x)
          ...     return x * 10
          >>> numbers = dl.data.Dataset.range(2).map(load).cache()
          >>> print(*numbers)
          loading 0
          loading 1
          0 10
          >>> print(*numbers)
          0 10
        """
        path = path_of(filename)
        if refusal := path_refusal(path, "cache"):
            raise ArgumentValueError(refusal)
        return self.with_plan(FileCache(self.plan, path) if path else in_memory(self.plan))

    def save(
        self,
        path: Any,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: dict[str, Any] | None = None,
    ) -> None:
        """Writes all elements into a folder, from which `Dataset.load` reads them.

        Elements that were saved there before are replaced when all are written.

        Args:
          path: The folder; it is made if there is none.
          compression: Ignored: elements are kept uncompressed.
          shard_func: Must be None.
          checkpoint_args: Must be None.

        Raises:
          InvalidArgumentError: `path` is not a name, or the dataset has no end.
          UnsupportedError: Another argument is given.
          StructureError: Elements can't be kept in a file: datasets, or arrays whose
            dtype has fields.

        Example:
          >>> import distlab as dl
          >>> dl.data.Dataset.range(3).save("numbers")
          >>> print(*dl.data.Dataset.load("numbers"))
          0 1 2
        """
        _refuse_functions("save", shard_func, checkpoint_args)
        if self.plan.cardinality == INFINITE_CARDINALITY:
            raise no_end("save")
        recording = Recording(_file_in("saved", path), self.plan.spec if self.plan.exact else None)
        with contextlib.closing(Elements(self.plan)) as elements:
            collections.deque(recorded(elements, recording), maxlen=0)

    @classmethod
    def load(
        cls,
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[..., Any] | None = None,
        wait: bool = False,
    ) -> DatasetT:
        """Makes a dataset of the elements that `save` wrote.

        Args:
          path: The folder.
          element_spec: The nest of specs of an element, for named tuples of your own
            type. None makes their types anew.
          compression: Ignored.
          reader_func: Must be None.
          wait: Must be False.

        Returns:
          A dataset of known cardinality.

        Raises:
          InvalidArgumentError: The folder has no saved dataset, or one with another
            structure than `element_spec`.
          DataLossError: The files are damaged or cut off.
          UnsupportedError: Another argument is given.

        Example:
          >>> import distlab as dl
          >>> dl.data.Dataset.from_tensor_slices({"x": [1.5, 2.5]}).save("rows")
          >>> dl.data.Dataset.load("rows").element_spec
          {'x': TensorSpec(shape=(), dtype=dtype('float32'))}
        """
        _refuse_functions("load", reader_func, wait or None)
        file = _file_in("saved", path)
        if not file.exists():
            raise InvalidArgumentError(
                f"{path_of(path)!r} has no dataset that was saved completely. Write one with "
                "Dataset.save(path)."
            )
        spec = file.spec() if element_spec is None else element_spec
        return cls.from_plan(Saved(file, spec, file.index().elements))


def _file_in(name: str, folder: Any) -> CacheFile:
    path = path_of(folder)
    if not path:
        raise InvalidArgumentError("The path of a folder must not be empty.")
    if refusal := path_refusal(path, "A dataset that is kept"):
        raise ArgumentValueError(refusal)
    return CacheFile(os.fspath(Path(path) / name))


def _refuse_functions(verb: str, *given: Any) -> None:
    if any(each is not None for each in given):
        raise UnsupportedError(
            f"{verb} keeps elements in one file and in their order, so functions that divide or "
            "order the files, checkpoint_args and wait have no meaning. Leave them out, and use "
            "shard or shuffle after reading."
        )

"""The files of a cache: elements as records with checksums, and an index once they are whole.

The index is written last, and takes its place at once. So a file without an index does
not count, and one with an index is complete, or was damaged since.
"""

from __future__ import annotations

import collections
import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np

from distlab.data.plan.engine import Element, Reader, Replayed
from distlab.data.plan.nest import is_namedtuple, leaves, map_nest
from distlab.data.plan.plan import Node, Opener, Reading
from distlab.data.plan.spec import TensorSpec, common_spec, refuse_datasets, spec_of
from distlab.errors import DataLossError, InvalidArgumentError, StructureError, ValueShapeError
from distlab.io._files import writing
from distlab.io._records import record_of, tf_records

_FORMAT = "distlab.data 2"


class Index(msgspec.Struct, frozen=True):
    """The number of elements, the size of the data file, and the elements' specs (`_tree`)."""

    format: str
    elements: int
    bytes: int
    structure: Any


class CacheFile:
    """The data file and the index of a cache, whose names begin with `path`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = Path(f"{path}.data-00000-of-00001")
        self.index_path = Path(f"{path}.index")

    def exists(self) -> bool:
        """Returns whether the elements were written completely."""
        return self.index_path.exists()

    def index(self) -> Index:
        """Returns the index, once the data file has the size that it says."""
        try:
            index = msgspec.json.decode(self.index_path.read_bytes(), type=Index)
        except msgspec.DecodeError as error:
            raise self._damaged(f"its index, {self.index_path}, can't be read: {error}") from error
        if index.format != _FORMAT:
            raise self._damaged(f"its format is {index.format!r}, not {_FORMAT!r}")
        size = self.data.stat().st_size if self.data.exists() else 0
        if size != index.bytes:
            raise self._damaged(f"{self.data} has {size} bytes instead of {index.bytes}")
        return index

    def spec(self) -> Any:
        """Returns the nest of specs of an element, with named tuples of types made anew."""
        return _spec(self.index().structure)

    def elements(self, spec: Any) -> Iterator[Element]:
        """Yields the elements."""
        index = self.index()
        kept = _spec(index.structure)
        try:
            common_spec(kept, spec)
        except (StructureError, ValueShapeError) as error:
            raise InvalidArgumentError(
                f"The elements kept at {self.path!r} have other components than the dataset, which "
                f"was changed since: {kept!s:.200}. Delete the files whose names begin so, or use "
                "another name."
            ) from error
        count = 0
        with self.data.open("rb") as file:
            for record in tf_records(file, str(self.data)):
                yield _decoded(record, spec)
                count += 1
        if count != index.elements:
            raise self._damaged(f"it has {count} elements instead of {index.elements}")

    def _damaged(self, how: str) -> DataLossError:
        return DataLossError(
            f"The kept elements at {self.path!r} are damaged: {how}. Delete the files whose names "
            "begin so, and they are written again."
        )


class Recording:
    """Elements written one by one, to a file that counts only when they are complete."""

    def __init__(self, file: CacheFile, spec: Any = None) -> None:
        refuse_datasets("Keeping elements in a file", spec)
        self._file, self._spec, self._known = file, spec, spec is not None
        self._structure = _tree(spec) if self._known else None
        file.data.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(".part", f".{file.data.name}.", file.data.parent)
        self._part = Path(name)
        self._open: BinaryIO = os.fdopen(handle, "wb")
        self._elements = 0
        # Runs also when the iteration is dropped before its end.
        self.abandon = weakref.finalize(self, _discard, self._open, self._part)

    def add(self, element: Element) -> None:
        """Writes an element."""
        if not self._known:
            self._describe(spec_of(element.value))
        record = record_of(_encoded(element))
        with writing(self._file.path):
            self._open.write(record)
        self._elements += 1

    def _describe(self, spec: Any) -> None:
        """Notes the specs of an element, where only the elements show them."""
        if spec != self._spec:
            refuse_datasets("Keeping elements in a file", spec)
            self._spec = spec if self._spec is None else common_spec(self._spec, spec)
            self._structure = _tree(self._spec)

    def finish(self) -> None:
        """Makes the elements count."""
        with writing(self._file.path):
            self._open.flush()
            os.fsync(self._open.fileno())
        size = self._open.tell()
        self._open.close()
        index = Index(_FORMAT, self._elements, size, self._structure or _tree(()))
        part = self._part.with_suffix(".index")
        part.write_bytes(msgspec.json.encode(index))
        self._part.chmod(0o644)
        self._part.replace(self._file.data)
        part.replace(self._file.index_path)
        self.abandon.detach()


def _discard(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):  # what is left in its buffer may not fit on the disk
        file.close()
    path.unlink(missing_ok=True)


def _encoded(element: Element) -> bytes:
    indices = None if element.indices is None else element.indices.astype("<i8").tobytes()
    return msgspec.msgpack.encode(
        [[_leaf(leaf) for leaf in leaves(_in_order(element.value))], indices]
    )


def _in_order(nest: Any) -> Any:
    """Returns the nest with its dicts in the order of their keys, as files have them."""
    if isinstance(nest, Mapping):
        return {key: _in_order(nest[key]) for key in sorted(nest)}
    return tuple(map(_in_order, nest)) if isinstance(nest, tuple) else nest


def _leaf(leaf: Any) -> list[Any]:
    if isinstance(leaf, bytes):
        return ["", None, [leaf]]
    array = np.asarray(leaf)
    if array.dtype.kind == "O":
        return ["", array.shape, array.ravel().tolist()]
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return [array.dtype.name, array.shape, native.tobytes()]


def _decoded(record: bytes, spec: Any) -> Element:
    coded, indices = msgspec.msgpack.decode(record)
    values = iter(coded)
    ordered = map_nest(lambda _: _value(*next(values)), _in_order(spec))
    value = map_nest(lambda _, leaf: leaf, spec, ordered)
    return Element(value, None if indices is None else np.frombuffer(indices, "<i8"))


def _value(name: str, shape: list[int] | None, data: Any) -> Any:
    if shape is None:
        return data[0]
    if name:
        # Scalars become NumPy scalars, as the elements of arrays are.
        return np.frombuffer(data, np.dtype(name)).reshape(shape)[()]
    array = np.empty(len(data), dtype=object)
    array[:] = data
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _tree(spec: Any) -> Any:
    """Returns a nest of specs as lists, strings and numbers."""
    if isinstance(spec, Mapping):
        if not all(isinstance(key, str) for key in spec):
            raise StructureError(
                f"Elements are kept in files with keys that are strings, got {list(spec)}."
            )
        return {"dict": {key: _tree(part) for key, part in spec.items()}}
    if isinstance(spec, tuple):
        named = [type(spec).__name__, *cast(Any, spec)._fields] if is_namedtuple(spec) else []
        return {"tuple": [_tree(part) for part in spec], "names": named}
    if spec is None:
        return {}
    return {"dtype": "" if spec.dtype.kind == "O" else spec.dtype.name, "shape": list(spec.shape)}


def _spec(tree: Any) -> Any:
    if not tree:
        return None
    if "dict" in tree:
        return {key: _spec(part) for key, part in tree["dict"].items()}
    if "tuple" in tree:
        name, *fields = tree["names"] or [""]
        make: Any = collections.namedtuple  # noqa: PYI024 - its fields are known when it is read
        parts = map(_spec, tree["tuple"])
        return make(name, fields)(*parts) if name else tuple(parts)
    return TensorSpec(tuple(tree["shape"]), np.dtype(tree["dtype"] or object))


@dataclass(frozen=True, eq=False)
class Saved(Node):
    """The elements that `Dataset.save` wrote."""

    file: CacheFile
    element_spec: Any
    size: int

    @property
    def spec(self) -> Any:
        """The specs of an element."""
        return self.element_spec

    @property
    def cardinality(self) -> int:
        """The number of elements."""
        return self.size

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens the elements."""
        return Replayed(lambda: self.file.elements(self.element_spec))

"""Steps in which each replica receives a batch of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np

from distlab.data import INFINITE_CARDINALITY, Dataset, Element
from distlab.data.plan.engine import State
from distlab.errors import InvalidArgumentError, StructureError
from distlab.input._assemble import frozen
from distlab.input._steps import Reader, Step, Steps, flattened, full_batch
from distlab.input.spec import is_static
from distlab.text.shown import shown


@final
class PerReplicaBatches(Steps):
    """Steps in which each replica receives one element.

    Args:
      datasets: One dataset from which the replicas take elements in turn, or one
        for each replica.
      replicas: The number of replicas.
      local_spec: The specs of a replica's element; by default the last dataset's.
      fills: Whether a last step in which some replicas have no element is returned,
        with empty batches for those. None does as TensorFlow: it is, unless all
        shapes are static or the data is infinite.
    """

    policy: Literal["per_replica"] = "per_replica"

    def __init__(
        self,
        datasets: Sequence[Dataset],
        replicas: int,
        *,
        local_spec: Any = None,
        fills: bool | None = None,
    ) -> None:
        self._datasets = tuple(datasets)
        self._replicas = replicas
        self._local_spec = local_spec
        self.nominal = full_batch(self._datasets[0])
        self.rereadable = all(dataset.plan.rereadable for dataset in datasets)
        self.fills = self._may_be_incomplete() if fills is None else fills

    def open(self) -> Reader:
        """Starts a pass."""
        return _PerReplicaBatchReader(self._datasets, self._replicas)

    @property
    def local_spec(self) -> Any:
        """The specs of the datasets' elements."""
        return self._datasets[-1].element_spec if self._local_spec is None else self._local_spec

    @property
    def endless(self) -> bool:
        """Whether every replica (or, if it fills, any) has batches without end."""
        endless = [dataset.cardinality() == INFINITE_CARDINALITY for dataset in self._datasets]
        return any(endless) if self.fills else all(endless)

    def __len__(self) -> int:
        """Returns the number of steps in which every replica (or, if it fills, any) has a batch."""
        counts = [len(dataset) for dataset in self._datasets]
        if len(counts) == 1:
            whole, rest = divmod(counts[0], self._replicas)
            return whole + bool(rest and self.fills)
        return max(counts) if self.fills else min(counts)

    def _may_be_incomplete(self) -> bool:
        if self._datasets[0].cardinality() == INFINITE_CARDINALITY:
            return False
        return not is_static(self.local_spec)

    def __repr__(self) -> str:
        """Names the datasets."""
        return ", ".join(map(repr, self._datasets))


@final
class _PerReplicaBatchReader(Reader):
    def __init__(self, datasets: tuple[Dataset, ...], replicas: int) -> None:
        self._sources = [dataset.elements() for dataset in datasets]
        self._ended = [False] * len(datasets)
        self._source_of = [replica % len(datasets) for replica in range(replicas)]

    def read(self) -> Step:
        elements = [self._next(source) for source in self._source_of]
        present = [element for element in elements if element is not None]
        if not present:
            raise StopIteration
        # Positions are those in one source; with several they would be ambiguous.
        alone = len(self._sources) == 1
        indices = [e.indices for e in present if alone and e.indices is not None]
        flat = [None if element is None else flattened(element.value) for element in elements]
        leaves, structure = next(each for each in flat if each is not None)
        others = {each[1] for each in flat if each is not None} - {structure}
        if others:
            raise StructureError(
                "The replicas' datasets must have elements of one structure, but one has "
                f"{structure} and another {others.pop()}. Return the same components for every "
                "replica."
            )
        empty = [_no_rows(leaf) for leaf in leaves]
        rows = [empty if each is None else list(map(frozen, each[0])) for each in flat]
        return Step(
            structure,
            list(zip(*rows, strict=True)),
            [0 if e is None else _examples(row) for e, row in zip(elements, rows, strict=True)],
            np.concatenate(indices) if len(indices) == len(present) else None,
            complete=len(present) == len(elements),
        )

    def state(self) -> State:
        return {
            "sources": [source.state() for source in self._sources],
            "ended": list(self._ended),
        }

    def restore(self, state: State) -> None:
        if "sources" not in state or len(state["sources"]) != len(self._sources):
            raise InvalidArgumentError(
                f"The position must be of an iterator over {len(self._sources)} dataset(s) of "
                f"per-replica batches, got {shown(state)}. Restore it into an iterator made in the "
                "same way."
            )
        for source, position in zip(self._sources, state["sources"], strict=True):
            source.restore(position)
        self._ended = list(state["ended"])

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _next(self, source: int) -> Element | None:
        if self._ended[source]:
            return None
        element: Element | None = next(self._sources[source], None)
        self._ended[source] = element is None
        return element


def _no_rows(leaf: Any) -> Any:
    """Returns the component of an empty batch, from that of another replica."""
    if isinstance(leaf, bytes):
        return b""
    array = np.asarray(leaf)
    empty = array[:0] if array.ndim else np.zeros((), array.dtype)
    empty.flags.writeable = False
    return empty


def _examples(row: list[Any]) -> int:
    """Returns the number of examples of a batch; scalars are one example."""
    shapes = [np.shape(leaf) for leaf in row]
    return next((shape[0] for shape in shapes if shape), 1)

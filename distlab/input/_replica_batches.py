"""Batches for single replicas: each replica takes one in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import jax
import numpy as np

from distlab.data import INFINITE_CARDINALITY, Dataset, Element
from distlab.data._engine import State
from distlab.errors import InvalidArgumentError, StructureError
from distlab.input._place import settled
from distlab.input._step import Reader, Step, Steps, full_batch
from distlab.input.spec import is_static


@final
class ReplicaBatches(Steps):
    """Steps in which each replica takes one element.

    Args:
      datasets: one that all replicas take from in turn, or one for each.
      replicas: how many replicas take.
      local_spec: specs of what a replica gets, by default the last dataset's.
      fills: whether a last step for which some replicas have nothing is given,
        with empty batches for those. None as TensorFlow: it is, unless all
        shapes are known and so promised, or the data has no end.
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
        self.fills = self._may_be_incomplete() if fills is None else fills

    def open(self) -> Reader:
        """Starts a pass."""
        return _Taken(self._datasets, self._replicas)

    @property
    def local_spec(self) -> Any:
        """The batches' own."""
        return self._datasets[-1].element_spec if self._local_spec is None else self._local_spec

    def __len__(self) -> int:
        """How many times every replica, or some replica, finds a batch."""
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
class _Taken(Reader):
    def __init__(self, datasets: tuple[Dataset, ...], replicas: int) -> None:
        self._sources = [dataset.elements() for dataset in datasets]
        self._ended = [False] * len(datasets)
        self._turns = [i % len(datasets) for i in range(replicas)]

    def read(self) -> Step:
        taken = [self._take(source) for source in self._turns]
        given = [element for element in taken if element is not None]
        if not given:
            raise StopIteration
        # Positions in several sources would be taken for those of one.
        alone = len(self._sources) == 1
        indices = [e.indices for e in given if alone and e.indices is not None]
        leaves, structure = jax.tree.flatten(given[0].value)
        others = {jax.tree.structure(element.value) for element in given} - {structure}
        if others:
            raise StructureError(
                "The replicas' datasets must give elements of one structure, but one gave "
                f"{structure} and another {others.pop()}. Give every replica the same components."
            )
        empty = [_no_rows(leaf) for leaf in leaves]
        rows = [
            empty if element is None else list(map(settled, jax.tree.leaves(element.value)))
            for element in taken
        ]
        return Step(
            structure,
            list(zip(*rows, strict=True)),
            [0 if e is None else _examples(row) for e, row in zip(taken, rows, strict=True)],
            np.concatenate(indices) if len(indices) == len(given) else None,
            complete=len(given) == len(taken),
        )

    def state(self) -> State:
        return {
            "sources": [source.state() for source in self._sources],
            "ended": list(self._ended),
        }

    def restore(self, state: State) -> None:
        if "sources" not in state or len(state["sources"]) != len(self._sources):
            raise InvalidArgumentError(
                f"The position is not one of an iterator over {len(self._sources)} dataset(s) of "
                "single replicas. Restore into an iterator made in the same way."
            )
        for source, position in zip(self._sources, state["sources"], strict=True):
            source.restore(position)
        self._ended = list(state["ended"])

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _take(self, number: int) -> Element | None:
        if self._ended[number]:
            return None
        element: Element | None = next(self._sources[number], None)
        self._ended[number] = element is None
        return element


def _no_rows(leaf: Any) -> Any:
    """Returns a component of an empty batch, like that of another replica."""
    if isinstance(leaf, bytes):
        return b""
    array = np.asarray(leaf)
    empty = array[:0] if array.ndim else np.zeros((), array.dtype)
    empty.flags.writeable = False
    return empty


def _examples(row: list[Any]) -> int:
    """How many examples a batch has: a component without a first dimension is one."""
    shapes = [np.shape(leaf) for leaf in row]
    return next((shape[0] for shape in shapes if shape), 1)

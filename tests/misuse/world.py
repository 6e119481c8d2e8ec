"""The strategy that every misuse program receives, and the check that it was not harmed."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DistlabError
from distlab.recording.recording import Recording

REPLICAS = 4


class World:
    """A strategy in use.

    Attributes:
      strategy: A MirroredStrategy over 4 CPU devices.
      weights: A mirrored variable, [1, 2].
      total: An ON_READ variable with SUM aggregation, 3 on each replica.
      own: An ON_READ variable without aggregation, 0.
      x: A per-replica value, [n, n] on replica n.
      ragged: Three ones on replicas 0 and 1, one on the others.
      dataset: 0 to 9 in batches of 4.
      folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.strategy = dl.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
        on_read = dl.VariableSynchronization.ON_READ
        with self.strategy.scope():
            self.weights = dl.Variable(jnp.array([1.0, 2.0]), name="weights")
            self.total = dl.Variable(
                3.0,
                name="total",
                synchronization=on_read,
                aggregation=dl.VariableAggregation.SUM,
            )
            self.own = dl.Variable(0.0, name="own", synchronization=on_read)
        make = self.strategy.experimental_distribute_values_from_function
        self.x = make(lambda c: jnp.full(2, float(c.replica_id_in_sync_group)))
        self.ragged = make(lambda c: jnp.ones(3 if c.replica_id_in_sync_group < 2 else 1))
        self.dataset = dl.data.Dataset.range(10).batch(4)
        self.folder = self._own = folder

    @functools.cached_property
    def mean(self) -> dl.metrics.Mean:
        """A metric."""
        with self.strategy.scope():
            return dl.metrics.Mean()

    @functools.cached_property
    def recording(self) -> Recording:
        """A recording that goes on."""
        return dl.record(self._own / "recording")

    def close(self) -> None:
        """Ends the recording, if there is one."""
        if "recording" in vars(self):
            self.recording.close()

    def other(self) -> dl.Strategy:
        """Returns another strategy, over 2 devices."""
        return dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def require_same_state(self) -> None:
        """Asserts that all values are unchanged, and that no context is left over."""
        assert not dl.has_strategy()
        assert not dl.in_cross_replica_context()
        assert not [t.name for t in threading.enumerate() if t.name.startswith("distlab replica")]
        for copy in self.weights.values:
            np.testing.assert_array_equal(np.asarray(copy.value()), [1.0, 2.0])
        assert float(self.total.read_value()) == 3.0 * REPLICAS
        assert [float(copy.value()) for copy in self.own.values] == [0.0] * REPLICAS

    def require_unharmed(self) -> None:
        """Asserts that all values are unchanged, and that the strategy still works."""
        self.require_same_state()
        sums = self.strategy.run(_weighted_sum, args=(self.x, self.weights))
        np.testing.assert_array_equal(np.asarray(sums.values[REPLICAS - 1]), [6.0, 12.0])
        batches = list(self.strategy.experimental_distribute_dataset(self.dataset))
        assert [b.values[0].tolist() for b in batches] == [[0], [4], [8]]


def _weighted_sum(x: dl.PerReplica, weights: dl.Variable) -> object:
    return dl.get_replica_context().all_reduce("SUM", x) * weights.value()


@dataclass(frozen=True)
class Misuse:
    """A program that must raise an error.

    Attributes:
      program: The program.
      error: The type of the error.
      says: Parts of its message: the rule, the value, the remedy.
    """

    program: Callable[[World], object]
    error: type[dl.errors.DistlabError]
    says: tuple[str, str, str]


PROGRAMS: list[Misuse] = []


def misuse(
    error: type[dl.errors.DistlabError], rule: str, value: str, remedy: str
) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    """Adds a program to `PROGRAMS`."""

    def add(program: Callable[[World], object]) -> Callable[[World], object]:
        PROGRAMS.append(Misuse(program, error, (rule, value, remedy)))
        return program

    return add


_REMEDY: Final = re.compile(
    r"\b(Add|Assign|Call|Choose|Combine|Compare|Convert|Copy|Create|Divide|End|Enter|Export|Give|Keep|Leave|Let|"
    r"List|Make|Name|Number|Open|Pad|Parse|Pass|Read|Record|Reduce|Remove|Reshape|Restore|Return|Run|"
    r"Save|Serialize|Set|Start|Take|Unset|Use|Wait|Write|call|combine|leave|make|pass|put|use|"
    r"write)\b"
)
"""Words that name a remedy."""


def has_remedy(message: str) -> bool:
    """Returns whether a message names a remedy."""
    return bool(_REMEDY.search(message))


def require_refusal(call: Callable[[], object], kind: type[DistlabError], words: str) -> None:
    """Checks that a call raises an error of this kind that says these words and a remedy.

    Args:
      call: The call.
      kind: The error's class.
      words: A regular expression of what the message names.
    """
    with pytest.raises(kind, match=words) as refused:
        call()
    assert has_remedy(str(refused.value))


def names(value: Any, message: str) -> bool:
    """Returns whether a message shows a value, its type, or one of its elements."""
    return any(re.search(rf"(?<!\w){re.escape(t)}", message) for t in _texts(value, depth=2))


def _texts(value: Any, depth: int) -> list[str]:
    found = [type(value).__name__, str(getattr(value, "dtype", ""))]
    if isinstance(value, jax.core.Tracer):
        found += ["traced", "transformed", "transformation"]
    if isinstance(value, dl.PerReplica) and value.stacked.is_deleted():
        found.append("deleted")
    with contextlib.suppress(Exception):  # values whose repr raises, and very long numbers
        found.append(repr(value)[:40])
    if depth and isinstance(value, bytes | list | tuple | set | dict):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            found += _texts(part, depth - 1)
    if isinstance(value, np.ndarray):
        found += ["ndarray", *_texts(value.tolist(), depth)]
    return [text for text in found if text]

"""Places in a program from which a verb may be called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp

import distlab as dl
from tests.misuse.world import World
from tests.patience import LIMIT_SECONDS

Verb: TypeAlias = Callable[[World], object]
Place: TypeAlias = Callable[[World, Verb], object]

_EAGERLY: Final = dl.RunOptions(run_eagerly=True)


class _Kept:
    """Keeps what a verb returned where a program of JAX can't return it."""

    def __init__(self, world: World, verb: Verb) -> None:
        self._world, self._verb = world, verb
        self.value: object = None

    def __call__(self, *given: Any) -> Any:
        self.value = self._verb(self._world)
        return given[0] if given else None


def _in_scope(w: World, verb: Verb) -> object:
    with w.strategy.scope():
        return verb(w)


def _in_another_scope(w: World, verb: Verb) -> object:
    with w.other().scope():
        return verb(w)


def _on_replicas(w: World, verb: Verb) -> object:
    return w.strategy.run(lambda: verb(w))


def _on_eager_replicas(w: World, verb: Verb) -> object:
    return w.strategy.run(lambda: verb(w), options=_EAGERLY)


def _on_replicas_of_another(w: World, verb: Verb) -> object:
    return w.other().run(lambda: verb(w))


def _in_merge_call(w: World, verb: Verb) -> object:
    return _on_replicas(w, lambda _: dl.get_replica_context().merge_call(lambda _: verb(w)))


def _in_eager_merge_call(w: World, verb: Verb) -> object:
    return _on_eager_replicas(w, lambda _: dl.get_replica_context().merge_call(lambda _: verb(w)))


def _in_update(w: World, verb: Verb) -> object:
    return w.strategy.extended.update(w.own, lambda _: verb(w), group=False)


def _in_jit(w: World, verb: Verb) -> object:
    kept = _Kept(w, verb)
    jax.jit(kept)(1.0)
    return kept.value


def _in_jit_on_replicas(w: World, verb: Verb) -> object:
    return _on_replicas(w, lambda _: jax.jit(_Kept(w, verb))(1.0))


def _in_grad_on_replicas(w: World, verb: Verb) -> object:
    return _on_replicas(w, lambda _: jax.grad(_Kept(w, verb))(1.0))


def _in_scan_on_replicas(w: World, verb: Verb) -> object:
    return _on_replicas(
        w, lambda _: dl.scan(lambda _, x: (None, (verb(w), x)[1]), None, jnp.ones(2))
    )


def _in_lax_scan_on_replicas(w: World, verb: Verb) -> object:
    return _on_replicas(
        w, lambda _: jax.lax.scan(lambda _, x: (None, (verb(w), x)[1]), None, jnp.ones(2))
    )


def _in_a_thread(w: World, verb: Verb) -> object:
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(verb(w))
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            outcome.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    assert outcome, "the verb hangs in a thread"
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _in_a_thread_of_an_eager_replica(w: World, verb: Verb) -> object:
    return _on_eager_replicas(w, lambda _: _in_a_thread(w, verb))


PLACES: Final[dict[str, Place]] = {
    "outside": lambda w, verb: verb(w),
    "scope": _in_scope,
    "another_scope": _in_another_scope,
    "replicas": _on_replicas,
    "eager_replicas": _on_eager_replicas,
    "replicas_of_another": _on_replicas_of_another,
    "merge_call": _in_merge_call,
    "eager_merge_call": _in_eager_merge_call,
    "update": _in_update,
    "jit": _in_jit,
    "jit_on_replicas": _in_jit_on_replicas,
    "grad_on_replicas": _in_grad_on_replicas,
    "scan_on_replicas": _in_scan_on_replicas,
    "lax_scan_on_replicas": _in_lax_scan_on_replicas,
    "thread": _in_a_thread,
    "thread_of_an_eager_replica": _in_a_thread_of_an_eager_replica,
}

REPLICAS: Final = frozenset({"replicas", "eager_replicas"})
ON_OTHERS: Final = frozenset({"replicas_of_another"})
INSIDE: Final = frozenset(
    {"jit_on_replicas", "grad_on_replicas", "scan_on_replicas", "lax_scan_on_replicas"}
)
"""Places in a transformation within a replica function."""
STAGED: Final = frozenset({"jit", "merge_call"})
CROSS: Final = frozenset(PLACES) - REPLICAS - ON_OTHERS - INSIDE - {"another_scope"}
"""Places in the cross-replica context of the strategy, or in no strategy's."""
AT_ONCE: Final = CROSS - STAGED
"""Those of them where JAX computes at once."""
BETWEEN_STEPS: Final = AT_ONCE - {"update"} | {"another_scope"}
ALL: Final = frozenset(PLACES)


@dataclass(frozen=True)
class Row:
    """A verb.

    Attributes:
      call: Calls it with good arguments.
      good: The places where it gives its value.
      value: The sum of its value's numbers on the first replica; None where it has no numbers.
    """

    call: Callable[[World], object]
    good: frozenset[str]
    value: float | None = None

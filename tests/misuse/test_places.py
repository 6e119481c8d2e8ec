"""Every verb is called from every place in a program: it gives its value, or a typed error with the
remedy, and everything stays as it was."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DistlabError
from tests.misuse.places import (
    ALL,
    AT_ONCE,
    BETWEEN_STEPS,
    CROSS,
    INSIDE,
    ON_OTHERS,
    PLACES,
    REPLICAS,
    STAGED,
    Row,
)
from tests.misuse.world import World, has_remedy

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

_context: Final = dl.get_replica_context
_numbers: Final = itertools.count()


def _on_replica(call: Callable[[Any], object]) -> Callable[[World], object]:
    """Returns a verb of the replica context, which is None in cross-replica context."""
    return lambda _: None if _context() is None else call(_context())


def _scope(w: World) -> None:
    with w.strategy.scope():
        pass


def _new(w: World) -> Path:
    return w.folder / str(next(_numbers))


def _checkpoint(w: World) -> dl.train.Checkpoint:
    return dl.train.Checkpoint(weights=w.weights)


def _logged(w: World) -> None:
    w.recording.log(next(_numbers), loss=jnp.ones(()))


VERBS: Final[dict[str, Row]] = {
    "run": Row(lambda w: w.strategy.run(lambda: jnp.ones(2)), CROSS, 2.0),
    "reduce": Row(lambda w: w.strategy.reduce("SUM", w.x, axis=None), CROSS, 12.0),
    "experimental_distribute_values_from_function": Row(
        lambda w: w.strategy.experimental_distribute_values_from_function(lambda _: jnp.ones(2)),
        CROSS - {"jit"},
        2.0,
    ),
    "scope": Row(_scope, CROSS),
    "experimental_distribute_dataset": Row(
        lambda w: bool(w.strategy.experimental_distribute_dataset(w.dataset)), ALL
    ),
    "next": Row(
        lambda w: next(iter(w.strategy.experimental_distribute_dataset(w.dataset))),
        CROSS - {"jit"},
        0.0,
    ),
    "extended.reduce_to": Row(
        lambda w: w.strategy.extended.reduce_to("SUM", w.x, "CPU:0"), CROSS, 12.0
    ),
    "extended.update": Row(
        lambda w: w.strategy.extended.update(w.weights, lambda v: v.value()),
        CROSS - {"jit"} | REPLICAS | INSIDE,
        3.0,
    ),
    "Variable": Row(
        lambda _: dl.Variable(1.0).name, ALL - STAGED - INSIDE - {"replicas", "replicas_of_another"}
    ),
    "Variable.value": Row(lambda w: w.weights.value(), ALL - {"jit"}, 3.0),
    "Variable.read_value of ON_READ": Row(
        lambda w: w.total.read_value(), ALL - ON_OTHERS - {"jit"}
    ),
    "Variable.numpy": Row(
        lambda w: w.weights.numpy(),
        ALL - STAGED - INSIDE - {"replicas", "replicas_of_another"},
        3.0,
    ),
    "Variable.assign_add": Row(
        lambda w: w.weights.assign_add(jnp.zeros(2)),
        CROSS - {"jit"} | REPLICAS | {"scan_on_replicas"},
        3.0,
    ),
    "get_replica_context": Row(lambda _: bool(_context()), ALL),
    "ReplicaContext.all_reduce": Row(_on_replica(lambda c: c.all_reduce("SUM", 1.0)), ALL),
    "experimental_set_strategy": Row(
        lambda _: dl.experimental_set_strategy(None),
        AT_ONCE - {"scope", "eager_merge_call", "update"} | {"jit"},
    ),
    "scan": Row(
        lambda _: dl.scan(lambda _, x: (None, x), None, jnp.ones(2))[1],
        REPLICAS | ON_OTHERS | INSIDE | {"merge_call", "update"},
        2.0,
    ),
    "Checkpoint.save": Row(lambda w: bool(_checkpoint(w).save(_new(w))), BETWEEN_STEPS),
    "Recording.log": Row(_logged, AT_ONCE | {"another_scope", "eager_replicas"}),
    "Mean.result": Row(
        lambda w: bool(w.mean.result().shape),
        ALL - {"replicas_of_another", "jit"},
    ),
}


def _sum(value: Any) -> float | None:
    """Returns the sum of a value's first array on the first replica; None while JAX traces."""
    leaf = dl.nest.flatten(value)[0]
    while isinstance(leaf, dl.PerReplica):  # each eager replica may have one of its own
        leaf = leaf.stacked if isinstance(leaf.stacked, jax.core.Tracer) else leaf.values[0]
    if isinstance(leaf, jax.core.Tracer):
        return None
    return float(np.sum(np.asarray(leaf)))


def _fault(world: World, row: Row, name: str) -> str:
    """Calls a verb from a place, and returns what is wrong with the outcome."""
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            value = PLACES[name](world, row.call)
    except DistlabError as error:
        if name in row.good:
            return f"should work: {error!r:.300}"
        return "" if has_remedy(str(error)) else f"no remedy: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
        return f"no error of distlab: {error!r:.300}"
    if name not in row.good:
        return "accepted"
    if row.value is None or name in INSIDE:
        return ""  # those places return what the transformation does
    found = _sum(value)
    return "" if found is None or found == row.value else f"gives {value!r:.100}"


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
@pytest.mark.usefixtures("recorder")  # `watch` reads all that is in memory
def test_a_verb_works_where_it_belongs_and_is_refused_elsewhere(
    used_world: World, name: str, tmp_path: Path
) -> None:
    world = used_world
    world.folder = tmp_path
    wrong: list[str] = []
    for place in PLACES:
        found = _fault(world, VERBS[name], place)
        try:
            world.require_same_state()
        except Exception as harm:  # noqa: BLE001 - a broken variable can't be read
            found += f" AND DID HARM: {harm!r:.200}"
            world.close()
            world = World(world.folder)
        if found:
            wrong.append(f"{place}: {found}")
    assert not wrong, "\n".join(wrong)
    world.require_unharmed()

"""Programs that misuse distlab get a typed error with rule, value and remedy, and do no harm."""

from __future__ import annotations

import pytest

import distlab as dl
from tests.misuse import contexts, inputs, making, reducing, running, variables
from tests.misuse.world import PROGRAMS, Misuse, World

TOPICS = (contexts, inputs, making, reducing, running, variables)


def _name(case: Misuse) -> str:
    topic = case.program.__module__.rsplit(".", 1)[-1]
    return f"{topic}.{case.program.__name__}"


@pytest.mark.parametrize("case", PROGRAMS, ids=_name)
def test_misuse_gets_a_typed_error_and_does_no_harm(case: Misuse, world: World) -> None:
    with pytest.raises(case.error) as caught:
        case.program(world)
    assert type(caught.value) is case.error
    for part in case.says:
        assert part in str(caught.value)
    world.require_unharmed()


def test_errors_are_of_distlabs_and_of_pythons_kinds() -> None:
    for case in PROGRAMS:
        assert issubclass(case.error, dl.errors.DistlabError)
        assert issubclass(case.error, ValueError | TypeError | RuntimeError | LookupError | OSError)

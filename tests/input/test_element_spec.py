"""element_spec: each replica's specs, and the first dimensions that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.data import TensorSpec
from distlab.input.distribute import steps_of
from distlab.input.spec import PerReplicaSpec
from tests.input.feeding import mirrored, numbers

FLOATS = np.dtype(np.float32)


@pytest.mark.parametrize(("replicas", "part"), [(2, 2), (3, None), (4, 1), (8, None)])
def test_known_batches_are_known_parts_where_they_divide_evenly(
    replicas: int, part: int | None
) -> None:
    distributed = mirrored(replicas).experimental_distribute_dataset(numbers(8, 4, drop=True))
    assert distributed.element_spec == PerReplicaSpec((TensorSpec((part,), FLOATS),) * replicas)


def test_workers_first_dimensions_vary_unless_data_is_endless() -> None:
    context = dl.InputContext(2, 0, 4)
    known = numbers(8, 8, drop=True)
    for dataset, size in ((known, None), (known.repeat(), 2)):
        steps = steps_of(dataset, context, 2)
        assert steps.local_spec == TensorSpec((size,), FLOATS)


@settings(max_examples=10, deadline=None)
@given(
    size=st.integers(1, 20),
    batch=st.integers(1, 9),
    replicas=st.integers(2, 8),
    drop=st.booleans(),
)
def test_elements_are_what_the_spec_says(size: int, batch: int, replicas: int, drop: bool) -> None:
    strategy = mirrored(replicas)
    distributed = strategy.experimental_distribute_dataset(numbers(size, batch, drop=drop))
    (known,) = {spec.shape[0] for spec in distributed.element_spec.value_specs}
    for element in distributed:
        sizes = [part.shape[0] for part in strategy.experimental_local_results(element)]
        assert known is None or sizes == [known] * replicas

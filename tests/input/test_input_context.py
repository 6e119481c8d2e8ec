"""InputContext and InputOptions: their values and their errors."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from tests.input.feeding import mirrored, numbers

PER_REPLICA = dl.InputReplicationMode.PER_REPLICA


@given(each=st.integers(0, 1000), replicas=st.integers(1, 64))
def test_a_global_batch_size_that_divides_is_divided(each: int, replicas: int) -> None:
    context = dl.InputContext(num_replicas_in_sync=replicas)
    assert context.get_per_replica_batch_size(each * replicas) == each


def test_global_batch_size_that_does_not_divide_is_refused() -> None:
    context = dl.InputContext(2, 1, num_replicas_in_sync=8)
    with pytest.raises(ArgumentValueError, match=r"multiple .* \(8\), got 12\. Use a multiple"):
        context.get_per_replica_batch_size(12)


def test_defaults() -> None:
    context, options = dl.InputContext(), dl.InputOptions()
    assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)
    assert context.num_replicas_in_sync == 1
    assert options.experimental_fetch_to_device
    assert options.experimental_replication_mode is dl.InputReplicationMode.PER_WORKER
    assert not options.experimental_place_dataset_on_device
    assert options.experimental_per_replica_buffer_size == 1


def test_none_means_the_default_and_equal_options_are_equal() -> None:
    assert dl.InputOptions(None) == dl.InputOptions() == dl.InputOptions(True)
    assert dl.InputOptions(None).experimental_fetch_to_device is True
    assert dl.InputOptions(False) != dl.InputOptions()
    assert dl.InputOptions(None, PER_REPLICA) == dl.InputOptions(True, PER_REPLICA)
    named = {dl.InputOptions(): "default", dl.InputOptions(False): "on the host"}
    assert named[dl.InputOptions(None)] == "default"
    dataset = mirrored(2).experimental_distribute_dataset(numbers(4, 2), dl.InputOptions(None))
    assert isinstance(next(iter(dataset)).values[0], jax.Array)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            dl.InputOptions(experimental_place_dataset_on_device=True),
            ArgumentValueError,
            "needs a dataset for each replica",
        ),
        (
            dl.InputOptions(True, PER_REPLICA, True),
            ArgumentValueError,
            "can't both be true",
        ),
        (
            {"experimental_fetch_to_device": False},
            ArgumentTypeError,
            "must be distlab.InputOptions",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mirrored(2).distribute_datasets_from_function(lambda _: numbers(4, 2), options)


def test_options_of_other_types_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="at least 0, got -1"):
        dl.InputOptions(experimental_per_replica_buffer_size=-1)
    with pytest.raises(ArgumentTypeError, match="got 'PER_REPLICA'"):
        dl.InputOptions(experimental_replication_mode="PER_REPLICA")  # type: ignore[arg-type]


def test_datasets_for_single_replicas_come_from_a_function_only() -> None:
    options = dl.InputOptions(experimental_replication_mode=PER_REPLICA)
    for strategy in (mirrored(2), dl.OneDeviceStrategy("CPU:0")):
        with pytest.raises(UnsupportedError, match="distribute_datasets_from_function only"):
            strategy.experimental_distribute_dataset(numbers(4, 2), options)
    with pytest.raises(UnsupportedError, match="this is a OneDeviceStrategy"):
        dl.OneDeviceStrategy("CPU:0").distribute_datasets_from_function(
            lambda _: numbers(4, 2), options
        )

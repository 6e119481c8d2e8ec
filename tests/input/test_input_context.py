"""InputContext and InputOptions: their values and their errors."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import distlab as dl
from distlab.errors import ArgumentTypeError, ArgumentValueError
from tests.input.feeding import mirrored, numbers

PER_REPLICA = dl.InputReplicationMode.PER_REPLICA


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

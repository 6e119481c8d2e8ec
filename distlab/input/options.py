"""How input is distributed."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.counts import is_count


class InputReplicationMode(enum.Enum):
    """For what a dataset function is called (`tf.distribute.InputReplicationMode`).

    Attributes:
      PER_WORKER: once on each worker; its replicas take batches in turn.
      PER_REPLICA: once for each replica, which reads a dataset of its own.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions(msgspec.Struct, frozen=True):
    """Options of distributed input (`tf.distribute.InputOptions`). They change no value.

    Attributes:
      experimental_fetch_to_device: true puts batches on the replicas' devices;
        false leaves them in host memory, as NumPy arrays, until a step takes
        them.
      experimental_replication_mode: for what a dataset function is called.
      experimental_place_dataset_on_device: taken for TensorFlow's sake. Datasets
        are read in host memory; with this, each batch is put on its replica's
        device as soon as it was read.
      experimental_per_replica_buffer_size: how many batches are on the devices
        ahead of the program. 0 and 1: none are read before they are asked for.
        With more, a thread reads and places them.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


def checked_options(options: InputOptions | None) -> InputOptions:
    """Returns options, the default ones for None.

    Raises:
      ArgumentTypeError: they are no `InputOptions`.
      ArgumentValueError: they make no sense together.
    """
    if options is None:
        return InputOptions()
    if not isinstance(options, InputOptions):
        raise ArgumentTypeError(
            f"options must be distlab.InputOptions or None, got {type(options).__name__}."
        )
    mode: Any = options.experimental_replication_mode
    if not isinstance(mode, InputReplicationMode):
        raise ArgumentTypeError(
            "experimental_replication_mode must be InputReplicationMode.PER_WORKER or PER_REPLICA, "
            f"got {mode!r}."
        )
    size = options.experimental_per_replica_buffer_size
    if not is_count(size):
        raise ArgumentValueError(
            f"experimental_per_replica_buffer_size must be a whole number of batches, at least 0, "
            f"got {size!r}."
        )
    if options.experimental_place_dataset_on_device:
        _check_placement(options)
    return options


def _check_placement(options: InputOptions) -> None:
    if options.experimental_replication_mode is not InputReplicationMode.PER_REPLICA:
        raise ArgumentValueError(
            "experimental_place_dataset_on_device needs a dataset for each replica. Set "
            "experimental_replication_mode=InputReplicationMode.PER_REPLICA as well, or leave it "
            "out."
        )
    if options.experimental_fetch_to_device:
        raise ArgumentValueError(
            "experimental_place_dataset_on_device and experimental_fetch_to_device can't both be "
            "true. Set experimental_fetch_to_device=False, or leave both as they are."
        )

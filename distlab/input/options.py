"""The options of distributed input."""

from __future__ import annotations

import enum

import msgspec

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.counts import is_count
from distlab.text.shown import shown


class InputReplicationMode(enum.Enum):
    """The number of calls of a dataset function (`tf.distribute.InputReplicationMode`).

    Attributes:
      PER_WORKER: Once on each worker, whose replicas take batches in turn.
      PER_REPLICA: Once for each replica, which reads a dataset of its own.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> def dataset_fn(context):
      ...     return dl.data.Dataset.range(context.input_pipeline_id, 4).batch(2)
      >>> mode = dl.InputReplicationMode.PER_REPLICA
      >>> options = dl.InputOptions(experimental_replication_mode=mode)
      >>> dataset = strategy.distribute_datasets_from_function(dataset_fn, options)
      >>> next(iter(dataset)).values
      (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions(msgspec.Struct, frozen=True):
    """Options of distributed input (`tf.distribute.InputOptions`). They change no value.

    Attributes:
      experimental_fetch_to_device: Whether batches are put on the replicas' devices.
        False leaves them in host memory, as NumPy arrays, until a step uses them.
        None means True. With replicas in several processes they are always put there.
      experimental_replication_mode: How often a dataset function is called.
      experimental_place_dataset_on_device: Accepted for compatibility with
        TensorFlow. Datasets are always read in host memory; True puts each batch
        on its replica's device.
      experimental_per_replica_buffer_size: The number of batches on the devices ahead
        of the program. With 0 or 1 each batch is read on demand; with more, a
        thread reads and places them. Where several processes agree on each step, it is
        at least 2.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> options = dl.InputOptions(experimental_fetch_to_device=False)
      >>> dataset = dl.data.Dataset.range(8).batch(4)
      >>> batch = next(iter(strategy.experimental_distribute_dataset(dataset, options)))
      >>> type(batch.values[0]).__name__
      'ndarray'
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        """Checks the types; the default takes the place of None, so equal options are equal."""
        _check_types(self)
        if self.experimental_fetch_to_device is None:
            msgspec.structs.force_setattr(self, "experimental_fetch_to_device", True)


def checked_options(options: InputOptions | None) -> InputOptions:
    """Returns the options; the default ones for None."""
    if options is None:
        return InputOptions()
    if not isinstance(options, InputOptions):
        raise ArgumentTypeError(
            f"options must be distlab.InputOptions or None, got {type(options).__name__}. Write "
            "options=distlab.InputOptions(...)."
        )
    if options.experimental_place_dataset_on_device:
        _check_placement(options)
    return options


def _check_types(options: InputOptions) -> None:
    for name, kind in (
        ("experimental_fetch_to_device", bool | None),
        ("experimental_place_dataset_on_device", bool),
        ("experimental_replication_mode", InputReplicationMode),
    ):
        if not isinstance(value := getattr(options, name), kind):
            raise ArgumentTypeError(
                f"{name} must be of type {getattr(kind, '__name__', kind)}, got {shown(value)}. "
                "Leave it out for the default."
            )
    size = options.experimental_per_replica_buffer_size
    if not is_count(size):
        raise ArgumentValueError(
            "experimental_per_replica_buffer_size must be a whole number of batches, at least 0, "
            f"got {shown(size)}. Leave it out to read each batch on demand."
        )


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
            "true. Set experimental_fetch_to_device=False, or leave both out."
        )

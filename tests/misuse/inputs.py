"""Misuse of datasets and of their distribution."""

from __future__ import annotations

import numpy as np

import distlab as dl
from distlab import errors
from distlab.data import AutoShardPolicy, Dataset
from tests.misuse.world import World, misuse


@misuse(errors.NotBatchedError, "needs a batch dimension", "shape=()", "Call .batch(")
def a_dataset_that_is_not_batched(w: World) -> None:
    w.strategy.experimental_distribute_dataset(Dataset.range(10))


@misuse(errors.StructureError, "must be an iterable of batches", "ndarray", "from_tensor_slices")
def an_array_as_dataset(w: World) -> None:
    w.strategy.experimental_distribute_dataset(np.ones((8, 3)))


@misuse(errors.StructureError, "of global batches", "a DistributedDataset", "Iterate over it")
def a_distributed_dataset_that_is_distributed_again(w: World) -> None:
    once = w.strategy.experimental_distribute_dataset(w.dataset)
    w.strategy.experimental_distribute_dataset(once)


@misuse(errors.StructureError, "must have arrays of numbers", "b'a'", "array.astype")
def texts_as_arguments_of_a_step(w: World) -> None:
    texts = Dataset.from_tensor_slices(np.array(["a", "b", "c", "d"])).batch(4)
    for batch in w.strategy.experimental_distribute_dataset(texts):
        w.strategy.run(lambda x: x, args=(batch,))


@misuse(errors.OneShotError, "can be read only once", "This generator", "Dataset.from_generator")
def a_generator_read_twice(w: World) -> None:
    batches = w.strategy.experimental_distribute_dataset(np.ones(8) * i for i in range(3))
    assert len(list(batches)) == 3
    list(batches)


@misuse(errors.ValueShapeError, "the same first dimension", "[(8,), (4,)]", "All components")
def components_of_different_lengths(w: World) -> None:
    next(iter(w.strategy.experimental_distribute_dataset([(np.ones(8), np.ones(4))])))


@misuse(errors.ArgumentValueError, "a multiple of num_replicas", "got 10", "Use a multiple")
def a_batch_size_that_does_not_divide(w: World) -> None:
    dl.InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(10)


@misuse(errors.StructureError, "of one structure", "PyTreeDef((*, *))", "same components")
def datasets_of_different_structures(w: World) -> None:
    made: list[int] = []

    def dataset(_: dl.InputContext) -> Dataset:
        made.append(1)
        rows = np.ones(8, np.float32)
        return Dataset.from_tensor_slices(rows if len(made) == 1 else (rows, rows)).batch(2)

    mode = dl.InputReplicationMode.PER_REPLICA
    options = dl.InputOptions(experimental_replication_mode=mode)
    next(iter(w.strategy.distribute_datasets_from_function(dataset, options)))


@misuse(errors.IteratorContextError, "can't be called inside", "one replica", "next(iterator)")
def the_next_batch_inside_a_replica_function(w: World) -> None:
    iterator = iter(w.strategy.experimental_distribute_dataset(w.dataset))
    w.strategy.run(lambda: next(iterator))


@misuse(errors.InvalidArgumentError, "must have one shape", "[(0,), (1,)]", "Pad them")
def a_batch_of_different_shapes(w: World) -> None:
    list(Dataset.range(2).map(lambda n: np.ones(int(n))).batch(2))


@misuse(
    errors.InvalidArgumentError, "divides the files of a dataset", "reads none", "Use AutoShardPo"
)
def files_sharded_where_there_are_none(w: World) -> None:
    options = dl.data.Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.FILE
    dl.data.auto_shard(w.dataset.with_options(options), 2, 0)


@misuse(errors.DataLossError, "is not a TFRecord file", "byte 0", "compression_type")
def a_file_of_another_kind(w: World) -> None:
    path = w.folder / "a.tfrecord"
    path.write_bytes(b"hello, these are no records at all")
    list(dl.data.TFRecordDataset(str(path)))


@misuse(errors.DataLossError, "checksum of the 5 bytes of data", "number 1, from 0", "again")
def a_record_that_was_damaged(w: World) -> None:
    path = w.folder / "a.tfrecord"
    with dl.io.TFRecordWriter(path) as writer:
        writer.write(b"first")
        writer.write(b"other")
    path.write_bytes(path.read_bytes().replace(b"other", b"Other"))
    list(w.strategy.experimental_distribute_dataset(dl.data.TFRecordDataset(path).batch(2)))


@misuse(errors.InvalidArgumentError, "'label' of example 1", "is missing", "default_value")
def a_feature_that_an_example_lacks(w: World) -> None:
    del w
    records = [dl.io.serialize_example(values) for values in ({"label": 1}, {"lable": 2})]
    dl.io.parse_example(records, {"label": dl.io.FixedLenFeature([], "int64")})


@misuse(errors.InvalidArgumentError, "must hold int64", "got float32", "that dtype")
def a_feature_of_another_dtype(w: World) -> None:
    del w
    record = dl.io.serialize_example({"label": 1.0})
    dl.io.parse_single_example(record, {"label": dl.io.FixedLenFeature([], "int64")})


@misuse(errors.OptionError, "has no effect", "deterministic = True", "dataset.with_options")
def the_options_of_a_dataset_changed_in_place(w: World) -> None:
    w.dataset.options().deterministic = True

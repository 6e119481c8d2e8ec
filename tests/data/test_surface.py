"""Methods of tf.data.Dataset have the names of its parameters."""

from __future__ import annotations

import inspect

import pytest

from distlab.data import Dataset

# Public methods of TensorFlow 2.21's tf.data.Dataset, with their parameters in order.
METHODS = """
apply transformation_func
as_numpy_iterator
batch batch_size drop_remainder num_parallel_calls deterministic name
bucket_by_sequence_length element_length_func bucket_boundaries bucket_batch_sizes padded_shapes \
padding_values pad_to_bucket_boundary no_padding drop_remainder name
cache filename name
cardinality name
choose_from_datasets datasets choice_dataset stop_on_empty_dataset name
concatenate dataset name
counter start step dtype name
enumerate start name
filter predicate name
flat_map map_func name
from_generator generator output_types output_shapes args output_signature name
from_tensor_slices tensors name
from_tensors tensors name
group_by_window key_func reduce_func window_size window_size_func name
interleave map_func cycle_length block_length num_parallel_calls deterministic name
list_files file_pattern shuffle seed name
load path element_spec compression reader_func wait
map map_func num_parallel_calls deterministic synchronous use_unbounded_threadpool name
options
padded_batch batch_size padded_shapes padding_values drop_remainder name
prefetch buffer_size name
range args output_type name
rebatch batch_size drop_remainder name
reduce initial_state reduce_func name
repeat count name
sample_from_datasets datasets weights seed stop_on_empty_dataset rerandomize_each_iteration name
save path compression shard_func checkpoint_args
shard num_shards index name
shuffle buffer_size seed reshuffle_each_iteration name
skip count name
take count name
take_while predicate name
unbatch name
window size shift stride drop_remainder name
with_options options name
zip args datasets name
"""
LINES = METHODS.replace("\\\n", "").strip().splitlines()


def test_methods_have_the_parameters_of_tf_data() -> None:
    """Lists the methods whose parameters differ."""
    differing = []
    for line in LINES:
        method, *parameters = line.split()
        if list(inspect.signature(getattr(Dataset.range(1), method)).parameters) != parameters:
            differing.append(line)
    assert not differing


def test_dropped_verbs_are_plain_attribute_errors() -> None:
    for name in ("unique", "snapshot", "ragged_batch", "ignore_errors", "fingerprint"):
        with pytest.raises(AttributeError):
            getattr(Dataset.range(4), name)

"""distlab.io: tf.io's names for records, examples, files and images, without TensorFlow.

Example:
  >>> import distlab as dl
  >>> with dl.io.TFRecordWriter("flowers.tfrecord") as writer:
  ...     for label, name in enumerate(["rose", "tulip"]):
  ...         writer.write(dl.io.serialize_example({"name": name, "label": label}))
  >>> features = {
  ...     "name": dl.io.FixedLenFeature([], bytes),
  ...     "label": dl.io.FixedLenFeature([], "int64"),
  ... }
  >>> flowers = dl.data.TFRecordDataset("flowers.tfrecord").map(
  ...     lambda record: dl.io.parse_single_example(record, features)
  ... )
  >>> for flower in flowers:
  ...     print(flower["name"], flower["label"])
  b'rose' 0
  b'tulip' 1
"""

from distlab.io._decode import decode_csv, decode_raw
from distlab.io._features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
)
from distlab.io._files import read_file
from distlab.io._images import decode_image, decode_jpeg, decode_png
from distlab.io._parse import parse_example, parse_single_example
from distlab.io._ragged import Ragged
from distlab.io._serialize import serialize_example
from distlab.io._writer import TFRecordOptions, TFRecordWriter

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "Ragged",
    "RaggedFeature",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_csv",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "parse_example",
    "parse_single_example",
    "read_file",
    "serialize_example",
]

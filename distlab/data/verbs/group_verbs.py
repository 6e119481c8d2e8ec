"""The verbs of `Dataset` that collect elements: in windows, padded batches, or by a key."""

# ruff: noqa: ARG002 - tf.data's parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distlab.data.plan.arguments import checked, function, integer
from distlab.data.transforms.groups import Buckets, GroupByWindow, Window
from distlab.data.transforms.interleave import plan_maker
from distlab.data.transforms.padded_batch import PaddedBatch
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown


class GroupVerbs(Planned[DatasetT]):
    """The verbs that collect elements."""

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> DatasetT:
        """Makes datasets of consecutive elements.

        Args:
          size: The number of elements in a window.
          shift: The number of elements by which the next window begins later. None
            means `size`, so that windows do not overlap.
          stride: The distance of a window's elements.
          drop_remainder: Whether to drop windows at the end with fewer elements.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset whose elements have a `Dataset` at each leaf. `flat_map` with a
          function that batches them gives arrays.

        Raises:
          InvalidArgumentError: A number is less than 1.

        Example:
          >>> import distlab as dl
          >>> windows = dl.data.Dataset.range(6).window(3, shift=1, drop_remainder=True)
          >>> for window in windows.flat_map(lambda window: window.batch(3)):
          ...     print(window)
          [0 1 2]
          [1 2 3]
          [2 3 4]
          [3 4 5]
        """
        count, each, step, drop = checked(
            "window", size=size, shift=shift, stride=stride, drop_remainder=drop_remainder
        )
        return self.with_plan(Window(self.plan, count, each or count, step, drop, self.from_plan))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> DatasetT:
        """Pads elements of different shapes to one shape, and stacks them into batches.

        Args:
          batch_size: The number of examples in a batch.
          padded_shapes: The shape to pad each component to, in the structure of an
            element; None or -1 for a dimension that is as long as the longest of the
            batch. Without it every dimension is.
          padding_values: A scalar of the dtype of each component, in the structure of an
            element; or one for all components. None means 0, and the empty string.
          drop_remainder: Whether to drop a last batch with fewer examples.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset whose components have a new first dimension.

        Raises:
          InvalidArgumentError: `batch_size` is less than 1. During iteration, a
            component is larger than its padded shape or has another rank, or a padding
            value has another dtype.
          StructureError: During iteration, the structure of an element is another one.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> rows = dl.data.Dataset.range(1, 4).map(lambda n: np.full(n, n))
          >>> for batch in rows.padded_batch(2):
          ...     print(batch)
          [[1 0]
           [2 2]]
          [[3 3 3]]
          >>> for batch in rows.padded_batch(3, padded_shapes=[4], padding_values=-1):
          ...     print(batch)
          [[ 1 -1 -1 -1]
           [ 2  2 -1 -1]
           [ 3  3  3 -1]]
        """
        size, drop = checked("padded_batch", batch_size=batch_size, drop_remainder=drop_remainder)
        return self.with_plan(PaddedBatch(self.plan, size, drop, padded_shapes, padding_values))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Collects elements of one key, and makes a dataset of each window of them.

        Args:
          key_func: A function with the arguments of `map`'s; returns an integer.
          reduce_func: A function of a key and the `Dataset` of a window; returns a
            `Dataset`.
          window_size: The number of elements in a window.
          window_size_func: A function from a key to that number, instead of it.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the elements of all datasets, each when its window is full. At
          the end come the windows that are not full, by key.

        Raises:
          InvalidArgumentError: A function is not callable, or not exactly one of
            `window_size` and `window_size_func` is given, or a size is less than 1.
          StructureError: During iteration, `key_func` does not return an integer, or
            `reduce_func` a `Dataset`.

        Example:
          >>> import distlab as dl
          >>> def pairs(key, window):
          ...     return window.batch(2)
          >>> numbers = dl.data.Dataset.range(7)
          >>> print(*numbers.group_by_window(lambda n: n % 2, pairs, window_size=2))
          [0 2] [1 3] [4 6] [5]
        """
        if (window_size is None) == (window_size_func is None):
            raise InvalidArgumentError(
                "group_by_window needs either window_size or window_size_func, got "
                f"{'both' if window_size is not None else 'none'}."
            )
        if window_size is not None:
            (size,) = checked("group_by_window", window_size=window_size)
            size_of: Callable[..., Any] = lambda _: size  # noqa: E731
        else:
            size_of = function("group_by_window", window_size_func)
        key = function("group_by_window", key_func)
        reduce = plan_maker("group_by_window", function("group_by_window", reduce_func))
        return self.with_plan(GroupByWindow(self.plan, key, reduce, size_of, self.from_plan))

    def bucket_by_sequence_length(  # noqa: PLR0917 - tf.data's signature
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> DatasetT:
        """Makes padded batches of elements of similar lengths.

        Args:
          element_length_func: A function with the arguments of `map`'s; returns the
            length of an element, an integer.
          bucket_boundaries: The upper lengths (exclusive) of the buckets, ascending; a
            last bucket has the elements that are longer.
          bucket_batch_sizes: The batch size of each bucket, one more than boundaries.
          padded_shapes: As in `padded_batch`.
          padding_values: As in `padded_batch`.
          pad_to_bucket_boundary: Whether dimensions of unknown size are padded to the
            longest length that the bucket may have, instead of the batch's longest.
            Elements of the last bucket are then refused.
          no_padding: Whether to stack elements without padding.
          drop_remainder: Whether to drop last batches of buckets with fewer elements.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of batches.

        Raises:
          InvalidArgumentError: The boundaries do not ascend, there is not one batch size
            more, or a size is less than 1. During iteration with
            `pad_to_bucket_boundary`, an element is in the last bucket, or dimensions of
            unknown size are not known.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> rows = dl.data.Dataset.from_tensor_slices([1, 5, 2, 6, 1]).map(np.ones)
          >>> for batch in rows.bucket_by_sequence_length(len, [4], [3, 2]):
          ...     print(batch.shape)
          (2, 6)
          (3, 2)
        """
        verb = "bucket_by_sequence_length"
        flags = checked(
            verb,
            pad_to_bucket_boundary=pad_to_bucket_boundary,
            no_padding=no_padding,
            drop_remainder=drop_remainder,
        )
        boundaries, sizes = _bucket_numbers(verb, bucket_boundaries, bucket_batch_sizes)
        length_of = function(verb, element_length_func)
        buckets = Buckets(length_of, boundaries, sizes, padded_shapes, padding_values, *flags)
        return self.with_plan(
            GroupByWindow(
                self.plan, buckets.bucket_of, buckets.batched, buckets.size_of, self.from_plan
            )
        )


def _bucket_numbers(verb: str, boundaries: Any, batch_sizes: Any) -> tuple[list[int], list[int]]:
    uppers = [integer(verb, "a boundary", each) for each in boundaries]
    sizes = [integer(verb, "a batch size", each, at_least=1) for each in batch_sizes]
    if sorted(set(uppers)) != uppers:
        raise InvalidArgumentError(
            f"bucket_boundaries of {verb} must ascend, got {uppers}. Use sorted(set(...))."
        )
    if len(sizes) != len(uppers) + 1:
        raise InvalidArgumentError(
            f"bucket_batch_sizes of {verb} must have one size more than there are boundaries "
            f"({len(uppers)}), got {shown(batch_sizes)}. Give a size for each bucket."
        )
    return uppers, sizes

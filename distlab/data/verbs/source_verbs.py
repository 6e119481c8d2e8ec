"""The sources of `Dataset`: arrays, numbers, generators, and names of files."""

# ruff: noqa: ARG003 - tf.data's parameters

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from distlab.data.plan.arguments import checked, seed_of
from distlab.data.plan.convert import to_own
from distlab.data.sources import arrays as _arrays
from distlab.data.sources.files import matching_files
from distlab.data.sources.generator import Generator, signature_of
from distlab.data.transforms.order import Shuffle
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import InvalidArgumentError


class SourceVerbs(Planned[DatasetT]):
    """The methods that make a dataset of something else."""

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> DatasetT:
        """Makes a dataset whose elements are the rows of arrays.

        The arrays are copied once, so that later changes to them do not reach
        the dataset. Read-only arrays (`np.load(..., mmap_mode="r")`,
        `array.flags.writeable = False`, JAX arrays) are used without a copy, unless
        they are views of memory that can be written into, or in another byte order
        than the machine's.

        Args:
          tensors: A nest of array-likes of one length, shape `[rows, ...]`.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of `rows` elements of shape `[...]`.

        Raises:
          ValueShapeError: A component is a scalar, or the lengths differ.
          StructureError: A component can't become an array.

        Example:
          >>> import distlab as dl
          >>> images, labels = [[1, 2], [3, 4], [5, 6]], [0, 1, 0]
          >>> for image, label in dl.data.Dataset.from_tensor_slices((images, labels)):
          ...     print(image, label)
          [1 2] 0
          [3 4] 1
          [5 6] 0
        """
        return cls.from_plan(_arrays.rows_of(tensors))

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> DatasetT:
        """Makes a dataset of one element.

        Args:
          tensors: A nest of array-likes of any shapes.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset whose only element is `tensors`.

        Raises:
          StructureError: A component can't become an array.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.from_tensors([1, 2, 3]))
          [1 2 3]
        """
        return cls.from_plan(_arrays.single(tensors))

    @classmethod
    def range(cls, *args: int, output_type: Any = None, name: str | None = None) -> DatasetT:
        """Makes a dataset of numbers, with the arguments of Python's `range`.

        Args:
          *args: `stop`, or `start, stop`, or `start, stop, step`.
          output_type: The dtype of the numbers; None means int64.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of scalars.

        Raises:
          InvalidArgumentError: An argument is not an integer, or `output_type` is no numeric
            dtype.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(10, 4, -2))
          10 8 6
        """
        return cls.from_plan(_arrays.numbers(args, output_type))

    @classmethod
    def from_generator(  # noqa: PLR0917 - tf.data's signature
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> DatasetT:
        """Makes a dataset of the values that a generator function yields.

        Args:
          generator: Returns an iterable; called anew for each iteration.
          output_types: A nest of dtypes to convert components to; `"string"` for text. Without it
            and without a signature, components keep their dtypes.
          output_shapes: A nest of shapes to check, None for unknown dimensions.
          args: Arguments for `generator`, which receives NumPy values.
          output_signature: A nest of specs (`TensorSpec`, or any object with a
            shape and a dtype), instead of types and shapes.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of unknown cardinality.

        Raises:
          InvalidArgumentError: `generator` is not callable, or a signature is
            combined with types or shapes.
          ValueShapeError: During iteration, a value does not match the signature.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> def rows(count):
          ...     for number in range(count):
          ...         yield [number] * (number + 1)
          >>> signature = dl.data.TensorSpec((None,), np.dtype("int32"))
          >>> print(*dl.data.Dataset.from_generator(rows, args=(3,), output_signature=signature))
          [0] [1 1] [2 2 2]
        """
        if not callable(generator):
            raise InvalidArgumentError(
                "generator must be a function that returns an iterable, got "
                f"{type(generator).__name__}. Use distlab.data.as_dataset for an iterable."
            )
        signature = signature_of(output_types, output_shapes, output_signature)
        values = tuple(to_own(value) for value in args or ())
        return cls.from_plan(Generator(generator, values, signature))

    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Makes a dataset of the names of files.

        Args:
          file_pattern: A pattern with `*`, `?` and `[...]`, or a list of patterns.
          shuffle: Whether to shuffle the names for each iteration. None shuffles.
          seed: The seed of the shuffle.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of `bytes`, in sorted order when not shuffled.

        Raises:
          InvalidArgumentError: No file matches.

        Example:
          >>> import pathlib
          >>> import distlab as dl
          >>> for name in ("b.txt", "a.txt"):
          ...     pathlib.Path(name).touch()
          >>> print(*dl.data.Dataset.list_files("*.txt", shuffle=False))
          b'a.txt' b'b.txt'
        """
        names = matching_files(file_pattern)
        (shuffled,) = checked("list_files", shuffle=shuffle)
        if shuffled is False:
            return cls.from_plan(names)
        return cls.from_plan(Shuffle(names, names.size, seed=seed_of("list_files", seed)))

    @classmethod
    def counter(
        cls, start: int = 0, step: int = 1, dtype: Any = None, name: str | None = None
    ) -> DatasetT:
        """Makes a dataset that counts without end.

        Args:
          start: The first number.
          step: The difference of one number and the next.
          dtype: The dtype of the numbers; None means int64.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of scalars.

        Raises:
          InvalidArgumentError: A number is not an integer, or `dtype` is not numeric.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.counter(start=3, step=2).take(3))
          3 5 7
        """
        return cls.from_plan(_arrays.counted(start, step, dtype))

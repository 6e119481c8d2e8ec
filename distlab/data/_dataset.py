"""Dataset: tf.data's verbs. Each adds one node to an immutable plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from distlab.data import _arrays
from distlab.data._adapt import adapted
from distlab.data._convert import to_numpy
from distlab.data._element_verbs import ElementVerbs
from distlab.data._files import matching_files
from distlab.data._generator import Generator, signature_of
from distlab.data._iterator import Elements, Values
from distlab.data._nest import leaves, map_nest
from distlab.data._options import Options
from distlab.data._order_verbs import OrderVerbs
from distlab.data._plan import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node
from distlab.data._zip import Zip
from distlab.errors import CardinalityError, InvalidArgumentError, StructureError

_SIZE_NAMES: Final = {INFINITE_CARDINALITY: "infinitely many", UNKNOWN_CARDINALITY: "unknown many"}


class Dataset(OrderVerbs["Dataset"], ElementVerbs["Dataset"]):
    """A sequence of elements, each a nest of NumPy values.

    Methods return a new dataset and leave the old one unchanged. An iteration
    reads the elements; it can be repeated. Rows and batches that distlab makes
    are read-only, as in tf.data; the values of functions and iterables are
    passed on as they are.

    Example:
      >>> import distlab as dl
      >>> squares = dl.data.Dataset.range(5).map(lambda x: x * x)
      >>> print(*squares.batch(2))
      [0 1] [4 9] [16]
      >>> len(squares)
      5
    """

    def __init__(self, plan: Node, options: Options | None = None) -> None:
        """Wraps a plan; users call the `from_...` methods and transformations.

        Args:
          plan: The operations that produce the elements.
          options: The options to pass on.
        """
        self._plan = plan
        self._options = Options() if options is None else options

    # Sources

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """Makes a dataset whose elements are the rows of arrays.

        The arrays are copied once, so that later changes to them do not reach
        the dataset. Read-only arrays (`np.load(..., mmap_mode="r")`,
        `array.flags.writeable = False`, JAX arrays) are used without a copy.

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
        del name
        return Dataset(_arrays.rows_of(tensors))

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
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
        del name
        return Dataset(_arrays.single(tensors))

    @staticmethod
    def range(*args: int) -> Dataset:
        """Makes a dataset of int64 numbers, with the arguments of Python's `range`.

        Args:
          *args: `stop`, or `start, stop`, or `start, stop, step`.

        Returns:
          A dataset of scalars.

        Raises:
          InvalidArgumentError: An argument is not an integer, or the step is 0.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(10, 4, -2))
          10 8 6
        """
        return Dataset(_arrays.numbers(*args))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
    ) -> Dataset:
        """Makes a dataset of the values that a generator function yields.

        Args:
          generator: Returns an iterable; called anew for each iteration.
          output_types: A nest of dtypes to convert components to. Without it and
            without a signature, components keep their dtypes.
          output_shapes: A nest of shapes to check, None for unknown dimensions.
          args: Arguments for `generator`, which receives NumPy values.
          output_signature: A nest of specs (`TensorSpec`, or any object with a
            shape and a dtype), instead of types and shapes.

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
        values = tuple(to_numpy(value) for value in args or ())
        return Dataset(Generator(generator, values, signature))

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: int | None = None
    ) -> Dataset:
        """Makes a dataset of the names of files.

        Args:
          file_pattern: A pattern with `*`, `?` and `[...]`, or a list of patterns.
          shuffle: Whether to shuffle the names for each iteration. None shuffles.
          seed: The seed of the shuffle.

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
        names = Dataset(matching_files(file_pattern))
        return names if shuffle is False else names.shuffle(len(names), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """Pairs the elements of several datasets, up to the end of the shortest.

        Args:
          *args: Datasets, or one nest of datasets.
          datasets: A nest of datasets, instead of `args`.

        Returns:
          A dataset whose elements have the structure of the nest.

        Raises:
          StructureError: There is no dataset, or a leaf is not a `Dataset`.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(3)
          >>> for a, b in dl.data.Dataset.zip(numbers, numbers.skip(1)):
          ...     print(a, b)
          0 1
          1 2
        """
        nest = (args[0] if len(args) == 1 else args) if datasets is None else datasets
        nest = tuple(nest) if isinstance(nest, list) else nest
        parts = list(leaves(nest))
        if not parts or not all(isinstance(part, Dataset) for part in parts):
            names = ", ".join(type(part).__name__ for part in parts) or "nothing"
            raise StructureError(f"Dataset.zip needs Datasets or a nest of them, got {names}.")
        counter = iter(range(len(parts)))
        structure = map_nest(lambda _: next(counter), nest)
        options = Options()
        for part in parts:
            options = options.merge(part.options())
        return Dataset(Zip(tuple(part.plan for part in parts), structure), options)

    # Properties

    @property
    def plan(self) -> Node:
        """The operations that produce the elements."""
        return self._plan

    @property
    def element_spec(self) -> Any:
        """The nest of `TensorSpec` of an element, with None for dimensions that vary.

        The results of functions and iterables get the specs of the first
        element.

        Example:
          >>> import distlab as dl
          >>> dl.data.Dataset.range(10).batch(4).element_spec
          TensorSpec(shape=(None,), dtype=dtype('int64'))
        """
        return self._plan.spec

    @property
    def batched(self) -> bool:
        """Whether every component has a first dimension, along which it can be divided.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(10)
          >>> numbers.batched, numbers.batch(4).batched
          (False, True)
        """
        return all(spec.rank > 0 for spec in leaves(self.element_spec))

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        Example:
          >>> import distlab as dl
          >>> dataset = dl.data.Dataset.range(10)
          >>> dataset.batch(4).cardinality()
          3
          >>> dataset.repeat().cardinality() == dl.data.INFINITE_CARDINALITY
          True
        """
        return self._plan.cardinality

    def options(self) -> Options:
        """Returns a copy of the options, which can't be changed.

        Example:
          >>> import distlab as dl
          >>> dl.data.Dataset.range(10).options().experimental_distribute.auto_shard_policy
          <AutoShardPolicy.AUTO: 0>
        """
        return self._options.frozen()

    def with_options(self, options: Options) -> Dataset:
        """Merges options into those of the dataset.

        Args:
          options: The options; each one that is set replaces the earlier value.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: `options` is not an `Options`.

        Example:
          >>> import distlab as dl
          >>> options = dl.data.Options()
          >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.OFF
          >>> dataset = dl.data.Dataset.range(10).with_options(options)
          >>> dataset.options().experimental_distribute.auto_shard_policy
          <AutoShardPolicy.OFF: -1>
        """
        if not isinstance(options, Options):
            raise InvalidArgumentError(
                f"options must be distlab.data.Options, got {type(options).__name__}. Make one "
                "with distlab.data.Options() and set its fields."
            )
        return Dataset(self._plan, self._options.merge(options))

    def with_plan(self, plan: Node) -> Dataset:
        """Returns a dataset of another plan with the same options."""
        return Dataset(plan, self._options)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Calls a function with this dataset and returns its result.

        Args:
          transformation_func: A function from a dataset to a dataset.

        Returns:
          The function's dataset.

        Example:
          >>> import distlab as dl
          >>> def pairs(dataset):
          ...     return dataset.batch(2, drop_remainder=True)
          >>> print(*dl.data.Dataset.range(5).apply(pairs))
          [0 1] [2 3]
        """
        return transformation_func(self)

    def __len__(self) -> int:
        """Returns the number of elements.

        Raises:
          CardinalityError: The number is infinite or unknown.
        """
        size = self.cardinality()
        if size >= 0:
            return size
        how = "infinite" if size == INFINITE_CARDINALITY else "unknown before it is read"
        raise CardinalityError(
            f"A dataset has a len() only if its size is known; the size of this one is {how}. "
            "Use cardinality(), or take(n)."
        )

    def __bool__(self) -> bool:
        """Returns True, even for an empty dataset."""
        return True

    def __repr__(self) -> str:
        """Returns the number of elements; specs are left out, because they may need a read."""
        size = self.cardinality()
        return f"<distlab.data.Dataset of {_SIZE_NAMES.get(size, size)} elements>"

    # Reading

    def __iter__(self) -> Values:
        """Starts an iteration over the elements' values."""
        return Values(self.elements())

    def elements(self) -> Elements:
        """Starts an iteration over values with their positions in the source.

        Example:
          >>> import distlab as dl
          >>> for element in dl.data.Dataset.from_tensor_slices([10, 20, 30]).batch(2).elements():
          ...     print(element.value, element.indices)
          [10 20] [0 1]
          [30] [2]
        """
        return Elements(self._plan)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Starts an iteration over NumPy values, the same as `iter(dataset)`.

        Example:
          >>> import distlab as dl
          >>> [int(number) for number in dl.data.Dataset.range(3).as_numpy_iterator()]
          [0, 1, 2]
        """
        return iter(self)


def as_dataset(source: Any) -> Dataset:
    """Converts an iterable to a `Dataset`.

    Args:
      source: A `Dataset`, which is returned unchanged; a list of batches; a data
        loader (Grain, PyTorch, TensorFlow, Hugging Face); any other object that
        supports repeated `iter` calls; or a generator, which can be read once.
        Lists of arrays among its elements become tuples.

    Returns:
      A dataset of the elements, converted to NumPy through the array protocols.

    Raises:
      StructureError: `source` is not iterable, or is an array or a nest of arrays;
        `from_tensor_slices` makes a dataset of rows.

    Example:
      >>> import distlab as dl
      >>> dataset = dl.data.as_dataset([{"x": [1.0, 2.0]}, {"x": [3.0]}])
      >>> for batch in dataset:
      ...     print(batch["x"])
      [1. 2.]
      [3.]
    """
    return source if isinstance(source, Dataset) else Dataset(adapted(source))

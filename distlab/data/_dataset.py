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


class Dataset(OrderVerbs, ElementVerbs):
    """A sequence of elements, each a nest of NumPy values.

    Methods return a new dataset and leave the old one alone. Nothing is read
    until the dataset is iterated, which can be done any number of times.
    Elements that distlab makes (rows, batches) are read-only, as in tf.data;
    what a function or an iterable gives is passed on as it is.
    """

    def __init__(self, plan: Node, options: Options | None = None) -> None:
        """Made by the `from_...` methods and by transformations, not by users.

        Args:
          plan: what to read.
          options: options that travel along.
        """
        self._plan = plan
        self._options = Options() if options is None else options

    # Sources

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """Makes a dataset whose elements are the rows of arrays.

        The arrays are copied once, so that later changes to them do not reach
        the dataset; arrays that are read-only (`np.load(..., mmap_mode="r")`,
        `array.flags.writeable = False`, JAX arrays) are used as they are.

        Args:
          tensors: nest of array-likes of one length, shape `[rows, ...]`.
          name: taken for tf.data's sake.

        Returns:
          A dataset of `rows` elements of shape `[...]`.

        Raises:
          ValueShapeError: when one is a scalar or lengths differ.
          StructureError: when something can't become an array.
        """
        del name
        return Dataset(_arrays.rows_of(tensors))

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """Makes a dataset of one element.

        Args:
          tensors: nest of array-likes of any shapes.
          name: taken for tf.data's sake.

        Returns:
          A dataset whose only element is `tensors`.

        Raises:
          StructureError: when something can't become an array.
        """
        del name
        return Dataset(_arrays.single(tensors))

    @staticmethod
    def range(*args: int) -> Dataset:
        """Makes a dataset of int64 numbers, as Python's `range` counts.

        Args:
          *args: `stop`, or `start, stop`, or `start, stop, step`.

        Returns:
          A dataset of scalars.

        Raises:
          InvalidArgumentError: when an argument is no integer or the step is 0.
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
        """Makes a dataset of what a generator function yields.

        Args:
          generator: called anew for each iteration; returns an iterable.
          output_types: nest of dtypes to convert components to. None, and no
            signature: components are taken as they come.
          output_shapes: nest of shapes to check, None for unknown dimensions.
          args: arguments for `generator`, given as NumPy values.
          output_signature: nest of specs (`TensorSpec`, or anything with a shape
            and a dtype), in place of types and shapes.

        Returns:
          A dataset of unknown cardinality.

        Raises:
          InvalidArgumentError: when `generator` can't be called, or a signature
            is given beside types or shapes.
          ValueShapeError: while iterating, when it yields something else than
            was promised.
        """
        if not callable(generator):
            raise InvalidArgumentError(
                "from_generator takes a function that returns an iterable, got "
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
          file_pattern: pattern with `*`, `?` and `[...]`, or a list of them.
          shuffle: whether to shuffle the names for each iteration. None: yes.
          seed: seed of the shuffle.

        Returns:
          A dataset of `bytes`, in sorted order when not shuffled.

        Raises:
          InvalidArgumentError: when no file matches.
        """
        names = Dataset(matching_files(file_pattern))
        return names if shuffle is False else names.shuffle(len(names), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """Puts elements of several datasets side by side, up to the shortest.

        Args:
          *args: datasets, or one nest of datasets.
          datasets: a nest of datasets, in place of `args`.

        Returns:
          A dataset whose elements have the structure of the nest.

        Raises:
          StructureError: when something is not a `Dataset`, or there is none.
        """
        nest = (args[0] if len(args) == 1 else args) if datasets is None else datasets
        nest = tuple(nest) if isinstance(nest, list) else nest
        parts = list(leaves(nest))
        if not parts or not all(isinstance(part, Dataset) for part in parts):
            names = ", ".join(type(part).__name__ for part in parts) or "nothing"
            raise StructureError(f"zip takes Datasets or a nest of them, got {names}")
        counter = iter(range(len(parts)))
        structure = map_nest(lambda _: next(counter), nest)
        options = Options()
        for part in parts:
            options = options.merged(part.options())
        return Dataset(Zip(tuple(part.plan for part in parts), structure), options)

    # What it is

    @property
    def plan(self) -> Node:
        """What is read."""
        return self._plan

    @property
    def element_spec(self) -> Any:
        """The nest of `TensorSpec` of an element, None for dimensions that vary.

        Where a function or an iterable decides what elements are like, it is
        told from the first element.
        """
        return self._plan.spec

    @property
    def batched(self) -> bool:
        """Whether every component has a first dimension, along which it can be divided."""
        return all(spec.rank > 0 for spec in leaves(self.element_spec))

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`."""
        return self._plan.cardinality

    def options(self) -> Options:
        """Returns a copy of the options."""
        return self._options.merged(Options())

    def with_options(self, options: Options) -> Dataset:
        """Attaches options.

        Args:
          options: replace those that were set before.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: when they are no `Options`.
        """
        if not isinstance(options, Options):
            raise InvalidArgumentError(
                f"with_options takes distlab.data.Options, got {type(options).__name__}"
            )
        return Dataset(self._plan, self._options.merged(options))

    def with_plan(self, plan: Node) -> Dataset:
        """Returns a dataset of another plan with the same options."""
        return Dataset(plan, self._options)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Returns what a function makes of this dataset.

        Args:
          transformation_func: takes a dataset and returns one.
        """
        return transformation_func(self)

    def __len__(self) -> int:
        """Returns the number of elements.

        Raises:
          CardinalityError: when it is infinite or not known.
        """
        size = self.cardinality()
        if size >= 0:
            return size
        how = "infinite" if size == INFINITE_CARDINALITY else "not known without reading it"
        raise CardinalityError(
            f"a dataset has a len() only when its size is known; this one's is {how}. "
            "Use cardinality(), or take(n)."
        )

    def __bool__(self) -> bool:
        """Is true, whatever the length."""
        return True

    def __repr__(self) -> str:
        """Names the size; the specs may need an element to be read."""
        size = self.cardinality()
        return f"<distlab.data.Dataset of {_SIZE_NAMES.get(size, size)} elements>"

    # Reading

    def __iter__(self) -> Values:
        """Starts an iteration over the elements' values."""
        return Values(self.elements())

    def elements(self) -> Elements:
        """Starts an iteration over values together with their positions in the source."""
        return Elements(self._plan)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Starts an iteration; the values of every iteration are NumPy's here."""
        return iter(self)


def as_dataset(source: Any) -> Dataset:
    """Returns anything that can be iterated as a `Dataset`.

    Args:
      source: a `Dataset`, which is returned as it is; or a list of batches, a
        data loader (Grain, PyTorch, TensorFlow, Hugging Face), any object that
        `iter` can be called on again, or a generator, which can be read once.
        Lists of arrays among its elements become tuples.

    Returns:
      A dataset of the elements, converted to NumPy through the array protocols.

    Raises:
      StructureError: when it can't be iterated, or is an array or a nest of
        arrays: `from_tensor_slices` makes a dataset of rows.
    """
    return source if isinstance(source, Dataset) else Dataset(adapted(source))

"""Dataset: tf.data's verbs. Each adds one node to an immutable plan."""

# ruff: noqa: ARG002 - tf.data's parameters

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from distlab.data.plan.arguments import function
from distlab.data.plan.iterator import Elements, Values
from distlab.data.plan.nest import leaves
from distlab.data.plan.plan import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node
from distlab.data.sharding.options import Options
from distlab.data.sources.adapt import adapted
from distlab.data.verbs.element_verbs import ElementVerbs
from distlab.data.verbs.group_verbs import GroupVerbs
from distlab.data.verbs.mix_verbs import MixVerbs
from distlab.data.verbs.order_verbs import OrderVerbs
from distlab.data.verbs.source_verbs import SourceVerbs
from distlab.data.verbs.storage_verbs import StorageVerbs
from distlab.errors import CardinalityError, InvalidArgumentError

_SIZE_NAMES: Final = {INFINITE_CARDINALITY: "infinitely many", UNKNOWN_CARDINALITY: "unknown many"}


class Dataset(
    SourceVerbs["Dataset"],
    OrderVerbs["Dataset"],
    ElementVerbs["Dataset"],
    GroupVerbs["Dataset"],
    MixVerbs["Dataset"],
    StorageVerbs["Dataset"],
):
    """A sequence of elements, each a nest of NumPy values.

    Methods return a new dataset and leave the old one unchanged. An iteration
    reads the elements; it can be repeated. Rows and batches that distlab makes,
    and the values of generators, are read-only, as in tf.data; the results of
    functions and the elements of other iterables are passed on as they are.

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

    @staticmethod
    def from_plan(plan: Node, options: Options | None = None) -> Dataset:
        """Returns a dataset of a plan."""
        return Dataset(plan, options)

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
        """True if every component has a first dimension, along which it can be divided.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(10)
          >>> numbers.batched, numbers.batch(4).batched
          (False, True)
        """
        return all(spec.rank > 0 for spec in leaves(self.element_spec))

    def cardinality(self, name: str | None = None) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        Args:
          name: Ignored; accepted for compatibility with tf.data.

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

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """Merges options into those of the dataset.

        Args:
          options: The options; each one that is set replaces the earlier value.
          name: Ignored; accepted for compatibility with tf.data.

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

        Raises:
          InvalidArgumentError: `transformation_func` is not callable.

        Example:
          >>> import distlab as dl
          >>> def pairs(dataset):
          ...     return dataset.batch(2, drop_remainder=True)
          >>> print(*dl.data.Dataset.range(5).apply(pairs))
          [0 1] [2 3]
        """
        function("apply", transformation_func)
        return transformation_func(self)

    def __len__(self) -> int:
        """Returns the number of elements."""
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
        return Values(self._plan)

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

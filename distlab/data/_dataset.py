"""Dataset: tf.data's verbs. Each adds one node to an immutable plan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from distlab.data import _arrays
from distlab.data._batch import Batch
from distlab.data._bounds import Skip, Take
from distlab.data._iterator import Elements, Values
from distlab.data._map import Map
from distlab.data._options import Options
from distlab.data._plan import INFINITE_CARDINALITY, Node, is_plain
from distlab.data._prefetch import Prefetch
from distlab.data._repeat import Repeat
from distlab.data._shard import Shard
from distlab.data._shuffle import Shuffle
from distlab.errors import CardinalityError, InvalidArgumentError


class Dataset:
    """A sequence of elements, each a nest of NumPy values.

    Methods return a new dataset and leave the old one alone. Nothing is read
    until the dataset is iterated, which can be done any number of times.
    Elements are read-only, as in tf.data.
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
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Makes a dataset whose elements are the rows of arrays.

        The arrays are copied once, so that later changes to them do not reach
        the dataset; arrays that are read-only (`np.load(..., mmap_mode="r")`,
        `array.flags.writeable = False`, JAX arrays) are used as they are.

        Args:
          tensors: nest of array-likes of one length, shape `[rows, ...]`.

        Returns:
          A dataset of `rows` elements of shape `[...]`.

        Raises:
          ValueShapeError: when one is a scalar or lengths differ.
          StructureError: when something can't become an array.
        """
        return Dataset(_arrays.rows_of(tensors))

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Makes a dataset of one element.

        Args:
          tensors: nest of array-likes of any shapes.

        Returns:
          A dataset whose only element is `tensors`.

        Raises:
          StructureError: when something can't become an array.
        """
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

    # Order

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Dataset:
        """Puts elements in random order.

        Each element is drawn uniformly from the next `buffer_size` ones; with a
        buffer as large as the dataset the order is a uniform permutation.

        Args:
          buffer_size: how many elements to draw from.
          seed: the same seed gives the same orders in every process; None: a
            random one.
          reshuffle_each_iteration: whether each iteration, and each repetition,
            has an order of its own. None: yes.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: when `buffer_size` is less than 1.
        """
        size = _count("shuffle", "buffer_size", buffer_size, at_least=1)
        reshuffle = True if reshuffle_each_iteration is None else bool(reshuffle_each_iteration)
        if seed is None:
            return self._then(Shuffle(self._plan, size, reshuffle=reshuffle))
        number = _count("shuffle", "seed", seed)
        return self._then(Shuffle(self._plan, size, number, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeats the elements.

        Args:
          count: how often; None or -1: without end.

        Returns:
          A dataset `count` times as long.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        times = -1 if count is None else _count("repeat", "count", count)
        return self._then(Repeat(self._plan, None if times < 0 else times))

    def take(self, count: int) -> Dataset:
        """Keeps the first elements.

        Args:
          count: how many at most; -1: all.

        Returns:
          A dataset of the first `count` elements.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        number = _count("take", "count", count)
        return self if number < 0 else self._then(Take(self._plan, number))

    def skip(self, count: int) -> Dataset:
        """Leaves out the first elements.

        Args:
          count: how many; -1: all.

        Returns:
          A dataset of the other elements.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        number = _count("skip", "count", count)
        return self._then(Take(self._plan, 0) if number < 0 else Skip(self._plan, number))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keeps every `num_shards`-th element.

        Args:
          num_shards: how many shards there are.
          index: which of them, from 0.

        Returns:
          A dataset of elements `index`, `index + num_shards`, and so on.

        Raises:
          InvalidArgumentError: when `index` is not one of the shards.
        """
        shards = _count("shard", "num_shards", num_shards, at_least=1)
        number = _count("shard", "index", index, at_least=0)
        if number >= shards:
            raise InvalidArgumentError(
                f"index of shard must be less than num_shards ({shards}), got {number}"
            )
        return self._then(Shard(self._plan, shards, number))

    # Elements

    def batch(
        self, batch_size: int, drop_remainder: bool = False, num_parallel_calls: int | None = None
    ) -> Dataset:
        """Stacks elements into batches.

        Args:
          batch_size: examples in a batch.
          drop_remainder: whether to leave out a last batch with fewer.
          num_parallel_calls: taken for tf.data's sake; a batch of arrays is one
            operation here.

        Returns:
          A dataset whose components have a new first dimension.

        Raises:
          InvalidArgumentError: when `batch_size` is less than 1; while iterating,
            when elements of one batch have different shapes.
        """
        del num_parallel_calls
        size = _count("batch", "batch_size", batch_size, at_least=1)
        return self._then(Batch(self._plan, size, bool(drop_remainder)))

    def map(self, map_func: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """Applies a function to each element.

        Args:
          map_func: takes NumPy values (read-only): the parts of a tuple as
            separate arguments, anything else as one. Returns a nest of values;
            Python numbers become float32 and int32.
          num_parallel_calls: taken for tf.data's sake. The function runs in the
            thread that reads; `prefetch` moves that to another one.

        Returns:
          A dataset of the results.

        Raises:
          InvalidArgumentError: when `map_func` can't be called.
        """
        del num_parallel_calls
        return self._then(Map(self._plan, _function("map", map_func)))

    def prefetch(self, buffer_size: int | None = None) -> Dataset:
        """Prepares elements ahead, in a thread.

        Single rows of arrays are not prefetched: there is nothing to prepare.

        Args:
          buffer_size: how many elements at most; None or `AUTOTUNE`: two.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: when `buffer_size` is no integer.
        """
        size = -1 if buffer_size is None else _count("prefetch", "buffer_size", buffer_size)
        return self if is_plain(self._plan) else self._then(Prefetch(self._plan, size))

    # What it is

    @property
    def element_spec(self) -> Any:
        """The nest of `TensorSpec` of an element, None for dimensions that vary.

        After `map` it is told from what the function makes of the first element.
        """
        return self._plan.spec

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`."""
        return self._plan.cardinality

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
        """Names the size and the specs."""
        size = {-1: "infinite", -2: "unknown"}.get(self.cardinality(), str(self.cardinality()))
        return f"<Dataset of {size} elements: {self.element_spec}>"

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

    def _then(self, plan: Node) -> Dataset:
        return Dataset(plan, self._options)


def _count(verb: str, name: str, value: Any, at_least: int | None = None) -> int:
    """Returns an integer argument.

    Raises:
      InvalidArgumentError: when it is no integer or too small.
    """
    try:
        number = operator.index(value.item() if hasattr(value, "item") else value)
    except TypeError:
        raise InvalidArgumentError(f"{name} of {verb} must be an integer, got {value!r}") from None
    if at_least is not None and number < at_least:
        raise InvalidArgumentError(f"{name} of {verb} must be at least {at_least}, got {number}")
    return number


def _function(verb: str, function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidArgumentError(
            f"{verb} takes a function of an element, got {type(function).__name__}"
        )
    return function  # type: ignore[no-any-return]

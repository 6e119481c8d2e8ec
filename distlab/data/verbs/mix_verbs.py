"""The methods of `Dataset` that read several datasets: side by side, or in turns."""

# ruff: noqa: ARG003 - tf.data's parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.data.plan.arguments import checked, seed_of
from distlab.data.plan.nest import leaves, map_nest
from distlab.data.plan.spec import require_alike
from distlab.data.sharding.options import Options
from distlab.data.transforms.directed import Chosen, Sampled, checked_weights
from distlab.data.transforms.elements import Zip
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import ArgumentTypeError, InvalidArgumentError, StructureError
from distlab.text.shown import shown


class MixVerbs(Planned[DatasetT]):
    """The methods that read several datasets."""

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> DatasetT:
        """Pairs the elements of several datasets, up to the end of the shortest.

        Args:
          *args: Datasets, or one nest of datasets.
          datasets: A nest of datasets, instead of `args`.
          name: Ignored; accepted for compatibility with tf.data.

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
        if not parts or not all(isinstance(part, Planned) for part in parts):
            raise StructureError(
                f"Dataset.zip needs Datasets or a nest of them, got {shown(nest)}. Make them with "
                "Dataset.from_tensor_slices(...)."
            )
        counter = iter(range(len(parts)))
        structure = map_nest(lambda _: next(counter), nest)
        return cls.from_plan(
            Zip(tuple(part.plan for part in parts), structure), _merged_options(parts)
        )

    @classmethod
    def sample_from_datasets(  # noqa: PLR0917 - tf.data's signature
        cls,
        datasets: Sequence[Planned[Any]],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Takes each element from one of several datasets, chosen at random.

        Args:
          datasets: Datasets of elements with one structure and the same dtypes.
          weights: The probability of each dataset, not necessarily with the sum 1. None
            means equal ones. Datasets of weight 0 are left out.
          seed: The same seed gives the same choices in every process. None chooses a
            random seed.
          stop_on_empty_dataset: Whether to end when a dataset that is chosen has ended.
            Otherwise the choices go on among the others, whose shares then grow, until
            all have ended.
          rerandomize_each_iteration: Whether each iteration, and each repetition, has
            its own choices. None means no.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the chosen elements.

        Raises:
          ArgumentTypeError: A member of `datasets` is not a `Dataset`.
          InvalidArgumentError: There is no dataset, or the weights are not one
            non-negative number for each, one of them positive.
          StructureError: The structures of elements differ, where they are known before a read.
          ValueShapeError: Their dtypes differ; raised likewise.

        Example:
          >>> import distlab as dl
          >>> zeros = dl.data.Dataset.from_tensors(0).repeat()
          >>> ones = dl.data.Dataset.from_tensors(1).repeat()
          >>> mixed = dl.data.Dataset.sample_from_datasets([zeros, ones], [0.9, 0.1], seed=1)
          >>> sum(mixed.take(1000)) < 150
          np.True_
        """
        verb = "sample_from_datasets"
        parts = _datasets(verb, datasets)
        stop, again = checked(
            verb,
            stop_on_empty_dataset=stop_on_empty_dataset,
            rerandomize_each_iteration=rerandomize_each_iteration,
        )
        options = _merged_options(parts)
        plans = tuple(part.plan for part in parts)
        number = seed_of(verb, seed)
        shares = checked_weights([1.0] * len(parts) if weights is None else weights, len(parts))
        chosen = np.flatnonzero(shares)
        plans = tuple(plans[i] for i in chosen)
        if len(plans) == 1:
            return cls.from_plan(plans[0], options)
        require_alike(plans)
        sampled = Sampled(
            plans, stop, tuple(shares[chosen].tolist()), seed=number, reshuffle=bool(again)
        )
        return cls.from_plan(sampled, options)

    @classmethod
    def choose_from_datasets(
        cls,
        datasets: Sequence[Planned[Any]],
        choice_dataset: Planned[Any],
        stop_on_empty_dataset: bool = True,
        name: str | None = None,
    ) -> DatasetT:
        """Takes each element from the dataset that another dataset names by its number.

        Args:
          datasets: Datasets of elements with one structure and the same dtypes.
          choice_dataset: A dataset of integers from 0 to `len(datasets) - 1`.
          stop_on_empty_dataset: Whether to end when a dataset that is chosen has ended.
            Otherwise such choices are skipped.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the chosen elements, at most one for each choice.

        Raises:
          ArgumentTypeError: An argument is not a `Dataset`.
          InvalidArgumentError: There is no dataset. During iteration, a choice is not
            the number of a dataset.
          StructureError: The structures of elements differ, where they are known before a read.
          ValueShapeError: Their dtypes differ; raised likewise.

        Example:
          >>> import distlab as dl
          >>> words = [dl.data.Dataset.from_tensors(word).repeat() for word in ("a", "b", "c")]
          >>> choices = dl.data.Dataset.range(3).repeat(2)
          >>> print(*dl.data.Dataset.choose_from_datasets(words, choices))
          b'a' b'b' b'c' b'a' b'b' b'c'
        """
        parts = _datasets("choose_from_datasets", datasets)
        (choice,) = _datasets("choose_from_datasets", [choice_dataset])
        (stop,) = checked("choose_from_datasets", stop_on_empty_dataset=stop_on_empty_dataset)
        plans = tuple(part.plan for part in parts)
        require_alike(plans)
        return cls.from_plan(Chosen(plans, stop, choice.plan), _merged_options(parts))


def _datasets(verb: str, given: Any) -> list[Planned[Any]]:
    parts = list(given) if isinstance(given, Sequence) else [given]
    if not all(isinstance(part, Planned) for part in parts):
        raise ArgumentTypeError(
            f"{verb} needs Datasets, got {shown(given)}. Make them with "
            "Dataset.from_tensor_slices(...)."
        )
    if not parts:
        raise InvalidArgumentError(
            f"{verb} needs at least one dataset, got {shown(given)}. Pass a list of datasets."
        )
    return parts


def _merged_options(parts: Sequence[Planned[Any]]) -> Options:
    options = Options()
    for part in parts:
        options = options.merge(part.options())
    return options

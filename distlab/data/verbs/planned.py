"""The part of a dataset that its verbs build on."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

from distlab.data.plan.nest import AnyDataset
from distlab.data.plan.plan import Node
from distlab.data.sharding.options import Options

DatasetT = TypeVar("DatasetT", bound="Planned[Any]")
"""`Dataset`, whose module imports the verbs."""


class Planned(AnyDataset, Generic[DatasetT]):
    """A plan with options, from which a verb makes another dataset."""

    @property
    @abstractmethod
    def plan(self) -> Node:
        """The operations that produce the elements."""

    @abstractmethod
    def options(self) -> Options:
        """Returns a copy of the options."""

    @abstractmethod
    def with_options(self, options: Options) -> DatasetT:
        """Returns a dataset of the same elements with other options."""

    @staticmethod
    @abstractmethod
    def from_plan(plan: Node, options: Options | None = None) -> DatasetT:
        """Returns a dataset of a plan."""

    @abstractmethod
    def with_plan(self, plan: Node) -> DatasetT:
        """Returns a dataset of another plan with the same options."""

"""The controls of the explorer in a page."""

from __future__ import annotations

from typing import Final, TypedDict

from distlab.strategies.what_if import MOST_EXAMPLES, MOST_REPLICAS, POLICIES, STRATEGIES


class Control(TypedDict, total=False):
    """A control of the explorer in a page.

    Attributes:
      name: Name of the choice.
      label: Its label.
      kind: `"one of"`, `"number"` or `"text"`.
      options: What can be chosen, for `"one of"`.
      most: The largest number, for `"number"`.
    """

    name: str
    label: str
    kind: str
    options: list[str]
    most: int


CONTROLS: Final[list[Control]] = [
    {"name": "strategy", "label": "Strategy", "kind": "one of", "options": list(STRATEGIES)},
    {"name": "replicas", "label": "Replicas", "kind": "number", "most": MOST_REPLICAS},
    {"name": "batch", "label": "Batch", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "examples", "label": "Examples", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "policy", "label": "Input divided", "kind": "one of", "options": list(POLICIES)},
    {"name": "shape", "label": "Variable's shape", "kind": "text"},
]
"""The controls, in their order."""

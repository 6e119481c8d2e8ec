"""The explorer: the effects of a choice of strategy, replicas and batches, without devices."""

from __future__ import annotations

import sys
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

from distlab.errors import ArgumentValueError
from distlab.strategies.what_if import (
    MOST_EXAMPLES,
    MOST_REPLICAS,
    POLICIES,
    STRATEGIES,
    Choices,
)
from distlab.text.shown import shown
from distlab.widgets._explorer_steps import StepTab
from distlab.widgets._notebook import Execution
from distlab.widgets._static_html import line
from distlab.widgets._view import check_packages, find_views

if TYPE_CHECKING:
    from distlab.widgets._explorer_widget import ExplorerWidget


CONTROLS: Final[list[dict[str, Any]]] = [
    {"name": "strategy", "label": "Strategy", "kind": "one of", "options": list(STRATEGIES)},
    {"name": "replicas", "label": "Replicas", "kind": "number", "most": MOST_REPLICAS},
    {"name": "batch", "label": "Batch", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "examples", "label": "Examples", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "policy", "label": "Input divided", "kind": "one of", "options": list(POLICIES)},
    {"name": "shape", "label": "Variable's shape", "kind": "text"},
]
"""The controls of the first tab, in their order."""

BATCHES, STEP = "batches and a variable", "a step that ran"
TABS: Final[dict[str, Any]] = {
    "name": "about",
    "label": "Look at",
    "kind": "one of",
    "options": [BATCHES, STEP],
}
"""The control that changes the tab."""


@final
class Explorer:
    """Shows how a choice divides batches, places a variable and adds up gradients.

    Its second tab, `choose("about", "a step that ran")`, simulates a step of a strategy on other
    numbers of replicas, as `distlab.simulate` does.

    The library's own code computes the answers, without devices: there may be more
    replicas than this machine has devices. Made by `distlab.widgets.explorer`. In a
    script it prints the answer.

    Attributes:
      choices: The current choices.
      execution: The execution of the cell that made it.
      feed: Always None: it reads no run.
    """

    feed = None

    def __init__(self, choices: Choices) -> None:
        """Shows the first choices; `explorer` calls it.

        Args:
          choices: The choices, which must be valid.
        """
        check_packages()
        self.choices = choices
        self._views = find_views()
        self._lock = threading.Lock()
        self._about, self._steps = BATCHES, StepTab()
        self._widget: ExplorerWidget | None = None
        self._host = f"distlab-{uuid.uuid4().hex}"
        self.execution = self._views.notebook.execution if self._views else Execution("", "")
        self._drawn = self._picture()
        if self._views is None:
            sys.stdout.write(f"{self}\n")
            return
        from distlab.widgets._explorer_widget import ExplorerWidget

        self._widget = ExplorerWidget(self._host, self.choose)
        self._widget.show(self._controls(), self._written(), self._drawn)
        self._publish(update=False)
        self._views.add(self)

    @property
    def live(self) -> bool:
        """True while it responds to choices."""
        return self._widget is not None

    def choose(self, name: str, value: object) -> None:
        """Changes one choice; its widget shows the error of an invalid one and ignores it.

        Args:
          name: One of the `Choices`; `"about"` for the tab, `"step"` or `"sizes"` in the second.
          value: Its new value; a shape as text, such as `"784, 128"`.

        Raises:
          ArgumentValueError: The choice is invalid, and there is no widget to show that.

        Example:
          >>> import distlab as dl
          >>> explorer = dl.widgets.explorer()
          300 examples, batches of 64, over 8 replicas: 5 steps, ...
          >>> explorer.choose("shape", "3, 2")
          >>> explorer.choices.shape
          (3, 2)
        """
        with self._lock:
            error_line = ""
            try:
                if name == "about" and value in TABS["options"]:
                    self._about = str(value)
                if self._about == STEP:
                    self._steps.choose(name, value, self._redraw)
                elif name != "about":
                    self.choices = self._with(name, value).checked()
            except ArgumentValueError as error:
                if self._widget is None:
                    raise
                error_line = line(str(error))
            self._show(error_line)

    def _redraw(self) -> None:
        with self._lock:
            self._show()

    def _show(self, error_line: str = "") -> None:
        self._drawn = error_line + self._picture()
        if self._widget is not None:
            self._widget.show(self._controls(), self._written(), self._drawn)
            self._publish(update=True)

    def _controls(self) -> list[dict[str, Any]]:
        return [TABS, *(CONTROLS if self._about == BATCHES else self._steps.controls())]

    def close(self) -> None:
        """Ends it; the picture stays. A second call has no effect."""
        widget, self._widget = self._widget, None
        if widget is not None and self._views is not None:
            self._views.remove(self)
            widget.close()

    def _with(self, name: str, value: object) -> Choices:
        if name not in {control["name"] for control in CONTROLS}:
            raise ArgumentValueError(
                f"There is no choice named {shown(name, 40)}. Use one of "
                f"{', '.join(control['name'] for control in CONTROLS)}."
            )
        if name != "shape":
            change: dict[str, Any] = {name: value}  # `checked` checks its type
            return replace(self.choices, **change)
        shape = _as_shape(value)
        if shape is None:
            raise ArgumentValueError(
                f"A shape is whole numbers with commas, such as 784, 128, got {shown(value, 40)}."
            )
        return replace(self.choices, shape=shape)

    def _picture(self) -> str:
        if self._about == STEP:
            return self._steps.picture()
        from distlab.widgets._explorer_picture import picture

        return picture(self.choices)

    def _written(self) -> dict[str, object]:
        shape = ", ".join(map(str, self.choices.shape))
        chosen = {**vars(self.choices), "shape": shape}
        return {
            "about": self._about,
            **(chosen if self._about == BATCHES else self._steps.chosen()),
        }

    def _publish(self, *, update: bool) -> None:
        if self._views is not None:
            # The controls draw themselves into this element, over the picture.
            html = f'<div class="distlab-watch {self._host}"><div>{self._drawn}</div></div>'
            self._views.notebook.publish(html, str(self), self._host, update=update)

    def _ipython_display_(self) -> None:
        """Shows it once more, unless it was made by the cell that ends with it."""
        if self._views and self._views.notebook.execution != self.execution:
            self._publish(update=False)

    def __str__(self) -> str:
        if self._about == STEP:
            return str(self._steps)
        from distlab.widgets._explorer_picture import text

        return text(self.choices)

    def __repr__(self) -> str:
        return f"<Explorer of {self.choices}, {'live' if self.live else 'closed'}>"


def explorer(
    *,
    strategy: str = Choices.strategy,
    replicas: int = Choices.replicas,
    batch: int = Choices.batch,
    examples: int = Choices.examples,
    policy: str = Choices.policy,
    shape: tuple[int, ...] = Choices.shape,
    dtype: str = Choices.dtype,
) -> Explorer:
    """Opens an explorer: the effects of these choices, and of others.

    Args:
      strategy: `"MirroredStrategy"`, `"OneDeviceStrategy"`, `"CentralStorageStrategy"`, or
        `"MultiWorkerMirroredStrategy"`, here with two workers.
      replicas: Number of replicas of all workers, 1 to 16.
      batch: Examples in a global batch, 1 to 2,000; with `policy="FROM FUNCTION"` in a
        batch of one replica.
      examples: Examples in the dataset, 1 to 2,000.
      policy: The dataset's `AutoShardPolicy` (`"AUTO"`, `"DATA"`, `"OFF"`), or
        `"FROM FUNCTION"` for the batches of `distribute_datasets_from_function`.
      shape: Shape of a variable.
      dtype: Its element type: `"float32"`, `"bfloat16"`, `"float16"` or `"int32"`.

    Returns:
      The explorer, to `choose` in it and to `close` it.

    Raises:
      ArgumentValueError: A choice is invalid.
      MissingExtraError: The packages for notebooks are not installed.

    Example:
      >>> import distlab as dl
      >>> explorer = dl.widgets.explorer(replicas=2, batch=4, examples=5, shape=(3,))
      5 examples, batches of 4, over 2 replicas: 2 steps, ...
      A variable float32[3] takes 12 B: a whole copy on each of 2 devices, 24 B in all.
        Step 0: 2, 2
        Step 1 (last): 1 of 2, empty
      ...
    """
    choices = Choices(strategy, replicas, batch, examples, policy, tuple(shape), dtype)
    return Explorer(choices.checked())


def _as_shape(written: object) -> tuple[int, ...] | None:
    """Parses a shape such as `784, 128`; returns None for any other text."""
    words = str(written).strip(" ()[],").replace("\u00d7", ",").replace("x", ",").split(",")
    words = [word.strip() for word in words]
    if words == [""]:
        return ()
    if not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
        return None
    return tuple(map(int, words))

"""The explorer: choose a strategy, replicas and batches, and see at once what would happen."""

from __future__ import annotations

import sys
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from distlab.errors import ArgumentValueError
from distlab.strategies.what_if import MOST_EXAMPLES, MOST_REPLICAS, POLICIES, STRATEGIES, Choices
from distlab.widgets._notebook import Execution
from distlab.widgets._still import line
from distlab.widgets._view import check_packages, find_desk

if TYPE_CHECKING:
    from distlab.widgets._explorer_widget import ExplorerWidget

CONTROLS: list[dict[str, Any]] = [
    {"name": "strategy", "label": "Strategy", "kind": "one of", "options": list(STRATEGIES)},
    {"name": "replicas", "label": "Replicas", "kind": "number", "most": MOST_REPLICAS},
    {"name": "batch", "label": "Batch", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "examples", "label": "Examples", "kind": "number", "most": MOST_EXAMPLES},
    {"name": "policy", "label": "Input divided", "kind": "one of", "options": list(POLICIES)},
    {"name": "shape", "label": "Variable's shape", "kind": "text"},
]
"""What a page lets a reader choose."""


@final
class Explorer:
    """Shows how other choices would divide batches, place a variable and add up gradients.

    The answers come from the library's own code, which runs without devices: so
    there may be more replicas than this machine has. Made by
    `distlab.widgets.explorer`. In a script it prints the answer.

    Attributes:
      choices: what is chosen now.
      execution: the execution of the cell that made it.
      feed: always None: it reads no run.
    """

    feed = None

    def __init__(self, choices: Choices) -> None:
        """Shows the first choices; `explorer` makes it.

        Args:
          choices: checked ones.
        """
        check_packages()
        self.choices = choices
        self._desk = find_desk()
        self._lock = threading.Lock()
        self._widget: ExplorerWidget | None = None
        self._host = f"distlab-{uuid.uuid4().hex}"
        self.execution = self._desk.notebook.execution if self._desk else Execution("", "")
        self._drawn = self._picture()
        if self._desk is None:
            sys.stdout.write(f"{self}\n")
            return
        from distlab.widgets._explorer_widget import ExplorerWidget

        self._widget = ExplorerWidget(self._host, CONTROLS, self.choose)
        self._widget.show(self._written(), self._drawn)
        self._publish(update=False)
        self._desk.open(self)

    @property
    def live(self) -> bool:
        """Whether it still answers."""
        return self._widget is not None

    def choose(self, name: str, value: Any) -> None:
        """Chooses something else; what can't be is said, and changes nothing.

        Args:
          name: one of the `Choices`.
          value: for it; a shape as text, such as `"784, 128"`.
        """
        with self._lock:
            said = ""
            try:
                self.choices = self._with(name, value).checked()
            except ArgumentValueError as error:
                said = line(str(error))
            self._drawn = said + self._picture()
            if self._widget is not None:
                self._widget.show(self._written(), self._drawn)
                self._publish(update=True)

    def close(self) -> None:
        """Ends it; the picture stays. Closing twice does nothing."""
        widget, self._widget = self._widget, None
        if widget is not None and self._desk is not None:
            self._desk.forget(self)
            widget.close()

    def _with(self, name: str, value: Any) -> Choices:
        if name not in {control["name"] for control in CONTROLS}:
            raise ArgumentValueError(f"There is nothing called {name!r:.40} to choose.")
        if name != "shape":
            return replace(self.choices, **{name: value})
        shape = _as_shape(value)
        if shape is None:
            raise ArgumentValueError(
                f"A shape is whole numbers with commas, such as 784, 128, got {value!r:.40}."
            )
        return replace(self.choices, shape=shape)

    def _picture(self) -> str:
        from distlab.widgets._explorer_picture import picture

        return picture(self.choices)

    def _written(self) -> dict[str, Any]:
        return {**vars(self.choices), "shape": ", ".join(map(str, self.choices.shape))}

    def _publish(self, *, update: bool) -> None:
        if self._desk is not None:
            # The controls draw themselves into this element, over the picture.
            html = f'<div class="distlab-watch {self._host}"><div>{self._drawn}</div></div>'
            self._desk.notebook.publish(html, str(self), self._host, update=update)

    def _ipython_display_(self) -> None:
        """Shows it once more, unless it was made by the cell that ends with it."""
        if self._desk and self._desk.notebook.execution != self.execution:
            self._publish(update=False)

    def __str__(self) -> str:
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
    """Opens an explorer: what would happen with these choices, and with others.

    Args:
      strategy: `"MirroredStrategy"`, `"OneDeviceStrategy"`, `"CentralStorageStrategy"`, or
        `"MultiWorkerMirroredStrategy"`, which here means two workers.
      replicas: how many, of all workers together; 1 to 16.
      batch: examples in a global batch; with `policy="FROM FUNCTION"` in a batch
        of one replica. 1 to 2,000.
      examples: examples in the dataset, 1 to 2,000.
      policy: the dataset's `AutoShardPolicy` (`"AUTO"`, `"DATA"`, `"OFF"`), or
        `"FROM FUNCTION"`: the batches of `distribute_datasets_from_function`.
      shape: of a variable.
      dtype: of the variable: `"float32"`, `"bfloat16"`, `"float16"` or `"int32"`.

    Returns:
      The explorer, to `choose` in it and to `close` it.

    Raises:
      ArgumentValueError: a choice can't be; says which, and what can.
      MissingExtraError: the packages for notebooks are not installed.
    """
    choices = Choices(strategy, replicas, batch, examples, policy, tuple(shape), dtype)
    return Explorer(choices.checked())


def _as_shape(written: Any) -> tuple[int, ...] | None:
    """Returns the shape that somebody wrote as `784, 128`; None when it is none."""
    words = str(written).strip(" ()[],").replace("\u00d7", ",").replace("x", ",").split(",")
    words = [word.strip() for word in words]
    if words == [""]:
        return ()
    if not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
        return None
    return tuple(map(int, words))

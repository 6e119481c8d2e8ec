"""Simulations that pages and the explorer request of this process's steps, one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, final

from distlab.simulation.replicas import steps
from distlab.simulation.report import Simulation
from distlab.simulation.simulate import simulate
from distlab.text.shown import shown, shown_text
from distlab.threads import Thread

MOST_REPLICAS: Final = 1 << 16
_MOST_MESHES: Final = 8
_LENGTH: Final = 400


@final
class Requests:
    """The newest simulation that was requested, and its state.

    Attributes:
      found: The newest simulation; None before the first, and while one runs.
      state: What happens, or why a request failed; "" after success.
      running: Whether one runs.
    """

    def __init__(self) -> None:
        self.found: Simulation | None = None
        self.state = ""
        self.running = False

    @staticmethod
    def names() -> list[str]:
        """Returns the names of the steps that can be simulated."""
        return list(steps())

    def start(self, name: str, sizes: str, done: Callable[[], None] = lambda: None) -> None:
        """Simulates a step in a thread, unless one is simulated already.

        Args:
          name: One of `names`.
          sizes: Numbers of replicas with commas, such as `"16, 64"`.
          done: Called in that thread when it is over.
        """
        if self.running:
            return
        self.found, known = None, steps()
        numbers = [int(word) for word in re.findall(r"\d{1,9}", sizes)][:_MOST_MESHES]
        if name not in known:
            self.state = f"There is no step named {shown(name, 40)} in this process any more."
        elif not numbers or re.search(r"[^\d\s,]", sizes) or max(numbers) > MOST_REPLICAS:
            self.state = f"Numbers of replicas are like 16, 64, got {shown(sizes, 40)}."
        elif 0 in numbers:
            self.state = "There must be a replica, got 0."
        else:
            self.running, self.state = True, f"Compiling {name} for {sizes} replicas \u2026"
            fn, axes = known[name]
            meshes = [axes | {"replica": number} for number in numbers]
            Thread(self._simulate, fn, meshes, done, name="distlab simulation").start()

    def _simulate(
        self, fn: Callable[..., Any], meshes: list[Any], done: Callable[[], None]
    ) -> None:
        try:
            self.found, self.state = simulate(fn, meshes), ""
        except Exception as error:  # noqa: BLE001 - of the user's code, too; the page shows it
            self.state = f"{type(error).__name__}: {shown_text(error)}"[:_LENGTH]
        finally:
            self.running = False
        done()

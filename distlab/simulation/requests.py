"""Simulations that pages and the explorer request of this process's steps, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from distlab.simulation.replicas import steps
from distlab.simulation.report import Simulation
from distlab.simulation.simulate import simulate
from distlab.text.shown import shown, shown_text
from distlab.threads import Thread

_MOST_REPLICAS: Final = 1 << 16
_MOST_MESHES: Final = 8
_LENGTH: Final = 400


@final
class Requests:
    """The newest simulation that was requested, and its state."""

    def __init__(self) -> None:
        self.found: Simulation | None = None  # None before the first, and while one runs
        self.state = ""  # what happens, or why a request failed
        self.running = False
        self._next: tuple[str, str, Callable[[], None]] | None = None

    def start(self, name: str, sizes: str, done: Callable[[], None] = lambda: None) -> None:
        """Simulates a step on replicas such as `"16, 64"` in a thread, after the one running."""
        if self.running:
            self._next = (name, sizes, done)
            return
        self.found, known = None, steps()
        words = [word.strip() for word in sizes.split(",")][:_MOST_MESHES]
        if name not in known:
            self.state = f"There is no step named {shown(name, 40)} in this process any more."
        elif not all(word.isdecimal() and 0 < int(word) <= _MOST_REPLICAS for word in words):
            self.state = f"Numbers of replicas are like 16, 64, got {shown(sizes, 40)}."
        else:
            self.running, self.state = True, f"Compiling {name} for {sizes} replicas \u2026"
            fn, axes = known[name]
            meshes = [axes | {"replica": int(word)} for word in words]
            Thread(self._simulate, fn, meshes, done, name="distlab simulation").start()

    def _simulate(
        self, fn: Callable[..., Any], meshes: list[Any], done: Callable[[], None]
    ) -> None:
        try:
            self.found, self.state = simulate(fn, meshes), ""
        except Exception as error:  # noqa: BLE001 - of the user's code, too; the page shows it
            self.state = f"{type(error).__name__}: {shown_text(error)}"[:_LENGTH]
        self.running = False
        if self._next is not None:
            wanted, self._next = self._next, None
            self.start(*wanted)
        done()

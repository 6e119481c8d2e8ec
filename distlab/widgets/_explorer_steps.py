"""The explorer's second tab: a step that ran here, on other numbers of replicas."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, Final, final

from distlab.simulation.replicas import steps
from distlab.simulation.requests import Requests
from distlab.text.units import aligned, plain
from distlab.widgets._static_html import NO_BREAK, line, table

_NONE: Final = (
    "No step has run under a strategy here. After strategy.run(step, ...) it can be chosen; for "
    "plain JAX call dl.simulate(make, [{'data': 64}]), where make(mesh) returns (fn, args)."
)
_NOTE: Final = (
    "Bytes of one device. Traced for so many replicas, each with a batch as large as before, and "
    "compiled in another process; nothing ran."
)


@final
class StepTab:
    """The choice of a step and of numbers of replicas, and what was simulated of it."""

    def __init__(self) -> None:
        self._requests = Requests()
        self._sizes = "16, 64, 256"
        self._step = ""

    def controls(self) -> list[dict[str, Any]]:
        """Returns the controls, in their order."""
        names = list(steps())
        return [
            {"name": "step", "label": "Step", "kind": "one of", "options": names},
            {"name": "sizes", "label": "Replicas", "kind": "text"},
        ]

    def chosen(self) -> dict[str, object]:
        """Returns the choices by their controls' names."""
        return {"step": self._step, "sizes": self._sizes}

    def choose(self, name: str, value: object, done: Callable[[], None]) -> None:
        """Changes a choice and simulates it in a thread, which calls `done` at its end."""
        names = list(steps())
        if name == "sizes":
            self._sizes = str(value)
        elif name == "step":
            self._step = str(value)
        if self._step not in names:
            self._step = next(iter(names), "")
        if self._step:
            self._requests.start(self._step, self._sizes, done)

    def picture(self) -> str:
        """Returns what was simulated as HTML that needs neither script nor style sheet."""
        found, state = self._requests.found, self._requests.state
        if found is None:
            return line(state or _NONE)
        headings, rows = found.table()
        columns = {
            heading: [escape(row[n]).replace(" ", NO_BREAK) for row in rows]
            for n, heading in enumerate(headings)
        }
        notes = "".join(map(line, found.notes()))
        return f"{table(columns, 'meshes')}{notes}<p><small>{escape(_NOTE)}</small></p>"

    def __str__(self) -> str:
        found = self._requests.found
        if found is None:
            return plain(self._requests.state, 400) or _NONE
        headings, rows = found.table()
        return "\n".join([*aligned([headings, *rows]), *found.notes(), _NOTE])

"""ignore_errors: elements whose computation fails are left out."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary

_log = logging.getLogger("distlab")


@dataclass(frozen=True, eq=False)
class IgnoreErrors(Unary):
    """Leaves out the elements whose computation raises an error."""

    log_warning: bool

    @property
    def cardinality(self) -> int:
        """Unknown, because errors decide."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the elements without errors."""
        return _IgnoreErrorsStream(open_input(self.input, reading), self.log_warning)


class _IgnoreErrorsStream(Stream):
    def __init__(self, parent: Stream, log_warning: bool) -> None:
        super().__init__(parent)
        self._log_warning = log_warning

    def __iter__(self) -> Reader:
        return _IgnoreErrorsReader(iter(self._parent), self._log_warning)


class _IgnoreErrorsReader(Reader):
    def __init__(self, parent: Reader, log_warning: bool) -> None:
        super().__init__(parent)
        self._log_warning = log_warning

    def __next__(self) -> Element:
        failed_at: State | None = None
        while True:
            before = self._parent.get_state()
            try:
                element: Element = next(self._parent)
            except StopIteration:
                raise
            except Exception as error:
                if before == failed_at:
                    raise  # the input does not get past the element
                failed_at = before
                if self._log_warning:
                    _log.warning("ignore_errors left out an element: %r", error)
            else:
                return element

    def get_state(self) -> State:
        return self._parent.get_state()

    def set_state(self, state: State) -> None:
        self._parent.set_state(state)

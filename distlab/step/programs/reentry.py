"""Steps that would begin inside of another one, in the same thread."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import final

from distlab.errors import ContextError


@final
class Dispatching(threading.local):
    """The call that dispatches a step in this thread.

    It is known by its frame, so that an interrupt which skips `end` leaves nothing behind.
    """

    _frame: FrameType | None = None

    def begin(self) -> None:
        """Notes that the caller dispatches a step."""
        frame: FrameType | None = sys._getframe(1)
        caller = frame
        while self._frame is not None and frame is not None:
            if frame is self._frame:
                raise ContextError(
                    "run was called by a function that interrupted another call of run in the "
                    "same thread, such as a signal handler or a finalizer, while the variables "
                    "were between two steps. Set a flag there, and look at it between steps."
                )
            frame = frame.f_back
        self._frame = caller

    def end(self) -> None:
        """Notes that the step is dispatched, or has failed."""
        self._frame = None

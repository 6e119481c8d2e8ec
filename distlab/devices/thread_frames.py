"""Frames of other threads.

Python 3.11 may collect garbage whenever it makes a frame object, and collecting may let other
threads run. If the thread whose frames are being read then leaves one of them, memory is
overwritten and the process crashes. So all frames are read in one call that runs no Python code,
in which no other thread runs either, with garbage collection off.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import accumulate, chain, repeat, starmap, takewhile
from operator import methodcaller, truth
from types import FrameType
from typing import Any, Final

_ONCE: Final = ((),)


def frames_of(thread: int) -> list[FrameType]:
    """Returns the frames of a thread, the innermost first; none of a thread that has ended."""
    innermost = map(methodcaller("get", thread), starmap(sys._current_frames, _ONCE))
    outwards: Iterator[Any] = accumulate(chain(innermost, repeat("f_back")), getattr)
    frames: Iterator[Any] = takewhile(truth, outwards)
    if gc.isenabled():
        frames = chain(starmap(gc.disable, _ONCE), frames, starmap(gc.enable, _ONCE))
    return [frame for frame in list(frames) if frame is not None]

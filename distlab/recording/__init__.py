"""Recordings: the recorder behind the sink, its ring in memory, and the run file's writer.

The package is called `recording` because `distlab.record` is the public verb.
The core never imports it, except for `make_default`, which `distlab.events.sink` calls.
"""

from distlab.recording.recorder import RingRecorder, make_default
from distlab.recording.recording import Recording, record
from distlab.recording.ring import Ring
from distlab.runs.run import Run

__all__ = ["Recording", "Ring", "RingRecorder", "Run", "make_default", "record"]

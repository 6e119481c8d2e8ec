"""Everything behind the seam: the ring in memory, the run file, the watcher.

The package is called `recording` because `distlab.record` is the public verb.
The core never imports it, except for `make_default`, which it hands to the seam.
"""

from distlab.recording.recorder import RingRecorder, make_default
from distlab.recording.recording import Recording, record
from distlab.recording.ring import Ring
from distlab.runs.run import Run

__all__ = ["Recording", "Ring", "RingRecorder", "Run", "make_default", "record"]

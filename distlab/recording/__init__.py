"""Everything behind the seam: the ring in memory, the run file, the watcher.

The package is called `recording` because `distlab.record` is the public verb.
The core never imports it, except for `make_default`, which it hands to the seam.
"""

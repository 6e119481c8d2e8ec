"""The warden: a process that kills process groups once the process that started it is gone.

It runs as a script, without distlab and site-packages, so that it takes some milliseconds to
start and a few megabytes. Its standard input says which groups exist: `+1234` and `-1234`.
"""

from __future__ import annotations

import os
import select
import signal
import sys

_POLL_SECONDS = 1.0


def main() -> None:
    """Reads standard input until it ends or the parent is another process; kills who is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = int(sys.argv[1])
    groups: set[int] = set()
    rest = b""
    # A child forked by the parent may keep the pipe open, so the parent's number is asked, too.
    while os.getppid() == parent:
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            continue
        read = os.read(0, 4096)
        if not read:
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue  # it is gone already


if __name__ == "__main__":
    main()

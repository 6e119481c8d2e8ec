"""Why an export could not be written, and what helps."""

from __future__ import annotations

import errno
import os

from distlab.errors import RecordError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def unwritten(what: str, place: str, error: OSError) -> RecordError:
    """Returns the error to raise in place of one of the operating system."""
    # The words of pyarrow's errors name the file that is written first.
    why = os.strerror(error.errno) if error.errno else error.strerror
    within = f"{place} in a folder" if place == "a file" else place
    remedy = (
        f"Free space there, or name {place} on another disk."
        if error.errno in _FULL
        else f"Name {within} that you may write."
    )
    return RecordError(f"{what}: {why}. {remedy}")

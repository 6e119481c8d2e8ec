"""Which files of this process writers have open: the records of two would mix."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from distlab.errors import ContextError
from distlab.text.shown import shown

_Key: TypeAlias = tuple[int, int]


@final
class _OpenFiles:
    """The writers by the device and number of their files, whatever these are called.

    A writer that is dropped leaves by itself. A forked process has none: it could not know which
    of them its parent closes.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.writers: weakref.WeakValueDictionary[_Key, Any] = weakref.WeakValueDictionary()
        self.lock = threading.RLock()  # a finalizer may close a writer at any time


_open: Final = _OpenFiles()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_open.forget)


def claim(path: str, writer: Any) -> None:
    """Notes that a writer has a file open, and creates the file if it isn't there."""
    with _open.lock:
        key = _key(path)
        if key in _open.writers:
            gc.collect()  # it may be garbage
        if key in _open.writers:
            raise ContextError(
                f"Another TFRecordWriter of this process has {shown(path, 200)} open, and their "
                "records would mix. Leave its with block, or call its close(), before you make "
                "the next one; or write another file, and read both with TFRecordDataset([...])."
            )
        if key is not None:
            _open.writers[key] = writer


def release(writer: Any) -> None:
    """Notes that a writer has closed its file."""
    with _open.lock:
        for key in [key for key, other in _open.writers.items() if other is writer]:
            del _open.writers[key]


def _key(path: str) -> _Key | None:
    """Returns what a file is known by to the system; None for what is no file."""
    if Path(path).exists() and not Path(path).is_file():
        return None
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        found = os.fstat(file)
    finally:
        os.close(file)
    return found.st_dev, found.st_ino

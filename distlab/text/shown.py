"""Users' values and errors as short texts for messages."""

from __future__ import annotations

import reprlib
from typing import Any, Final

_LENGTH: Final = 80


def shown(value: Any, length: int = _LENGTH) -> str:
    """Returns a value's `repr`, short, without surrogates, and whatever the value does.

    Of JAX arrays and per-replica values, also inside of a list or a dict, only dtype and shape
    are shown: their numbers may be deleted, or on devices that are still busy.
    """
    try:
        text = _Shortened(length).repr(value)
    except Exception:  # noqa: BLE001 - any code of the user's, such as `brief`
        text = f"<{type(value).__name__}>"
    return text[:length].encode("utf-8", "backslashreplace").decode()


class _Shortened(reprlib.Repr):
    """Shows arrays as their dtype and shape, and everything else as Python does."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 10 * length
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = length

    def repr1(self, x: Any, level: int) -> str:
        """Returns the text of one object."""
        if hasattr(type(x), "is_deleted") and hasattr(type(x), "addressable_shards"):
            return _array_text(x)
        if hasattr(type(x), "brief"):  # a value of each replica, without its numbers
            return str(x.brief())
        if type(x) in (list, tuple, dict):
            return super().repr1(x, level)
        try:
            return repr(x)
        except Exception:  # noqa: BLE001 - any code of the user's, and numbers of 4,300 digits
            return f"<{type(x).__name__}>"


def _array_text(array: Any) -> str:
    kind = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    try:
        return f"a deleted array {kind}" if array.is_deleted() else f"an array {kind}"
    except Exception:  # noqa: BLE001 - an array that is being traced has no memory
        return f"a traced array {kind}"


def shown_text(error: BaseException) -> str:
    """Returns an error's text, without surrogates, and whatever its class does.

    That of a group, as an `asyncio.TaskGroup` raises, goes on with its first three errors.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - any code of the user's
        return f"a {type(error).__name__}"
    if isinstance(error, BaseExceptionGroup):
        ones = (f"{type(one).__name__}: {shown_text(one)}" for one in error.exceptions[:3])
        text = f"{text}: {'; '.join(ones)}"
    return text.encode("utf-8", "backslashreplace").decode()


def shown_clause(error: BaseException, length: int = 400) -> str:
    """Returns an error's text for the middle of a message: without the full stop at its end."""
    return shown_text(error)[:length].rstrip(" .\n")


def said_by_jax(error: BaseException, length: int = 400) -> str:
    r"""Returns JAX's text about a value, for the middle of a message."""
    return f"JAX says: {shown_clause(error, length)}."

"""How a user's value is shown in a message."""

from __future__ import annotations

from typing import Any, Final

_MOST: Final = 80


def shown(value: Any) -> str:
    """Returns a value's `repr`, short, without surrogates, and whatever the value does.

    Example:
      >>> from distlab.text.shown import shown
      >>> shown("epoch 1"), shown(10**5000)
      ("'epoch 1'", '<int>')
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - any code of the user's, and whole numbers of 4,300 digits
        return f"<{type(value).__name__}>"
    return text[:_MOST].encode("utf-8", "backslashreplace").decode()


def shown_text(error: BaseException) -> str:
    """Returns an error's text, without surrogates, and whatever its class does.

    Example:
      >>> from distlab.text.shown import shown_text
      >>> shown_text(ValueError("no"))
      'no'
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - any code of the user's
        return f"a {type(error).__name__}"
    return text.encode("utf-8", "backslashreplace").decode()

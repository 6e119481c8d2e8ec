"""The path at which a proxy serves the page."""

from __future__ import annotations

import re
from typing import Final

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.shown import shown

# Bokeh makes regular expressions of it, and a browser resolves segments of dots.
_SEGMENT: Final = re.compile(r"(?!\.+$)[\w.~%@:-]+", re.ASCII)


def checked_prefix(prefix: object) -> str:
    """Returns a prefix without slashes at its ends, empty for none."""
    if not isinstance(prefix, str):
        raise ArgumentTypeError(
            f"prefix is a str such as 'user/ada/proxy/5006', got {type(prefix).__name__}. Pass the "
            "path at which the proxy serves the page, or none."
        )
    path = prefix.strip("/")
    if path and not all(_SEGMENT.fullmatch(segment) for segment in path.split("/")):
        raise ArgumentValueError(
            "prefix is the path at which a proxy serves the page, such as 'user/ada/proxy/5006': "
            f"letters from a to z, digits and . _ ~ % @ : - between slashes, got {shown(prefix)}. "
            "Write other letters as the address has them, such as %C3%A9."
        )
    return path

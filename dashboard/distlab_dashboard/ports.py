"""The ports that the dashboard listens on; importing this loads neither Panel nor Bokeh."""

from __future__ import annotations

import errno
import socket
from typing import Final

PORTS: Final = range(5006, 5206)
"""The ports that are tried, in this order, when none is named."""

TAKEN: Final = (errno.EADDRINUSE, errno.EACCES)
"""The errors of a port that another program uses, or that only root may use."""

_FIRST_FOR_ALL: Final = 1024
"""The first port that programs of all users may listen on."""


def refusal(address: str, port: int) -> str:
    """Returns why no server could listen on a port, such as "is taken"; "" for a free one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # As servers do: a port whose last connections are still closing is free.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address, port))
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            if error.errno == errno.EACCES and port < _FIRST_FOR_ALL:
                return "may be used by root only"
            return "is taken"
    return ""

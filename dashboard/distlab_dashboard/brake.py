"""A brake on guessing the token."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MOST_GUESSES: Final = 10
"""Different wrong tokens that one address may present in a minute."""

_PERIOD_SECONDS: Final = 60.0
_MOST_ADDRESSES: Final = 1_000
_NETWORK_BITS: Final = 64


@dataclass
class _Tries:
    """What an address presented in its present minute."""

    began: float
    wrong: set[bytes] = field(default_factory=set)


class Brake:
    """Makes an address wait that presents many wrong tokens.

    A wrong token that is presented again counts once: a page that tries its old one again and
    again guesses nothing. Links of other sites are counted apart: their wrong tokens keep nobody
    out who opens an address. Of the addresses, the newest thousand are remembered.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[tuple[str, bool], _Tries] = OrderedDict()

    def wait_seconds(self, address: str, *, by_link: bool = False) -> int:
        """Returns how long an address has to wait before its tokens are looked at, mostly 0."""
        tries = self._tries.get((_network(address), by_link))
        if tries is None or len(tries.wrong) < MOST_GUESSES:
            return 0
        return max(math.ceil(tries.began + _PERIOD_SECONDS - self._clock()), 0)

    def note_wrong(self, address: str, token: str, *, by_link: bool = False) -> None:
        """Notes that an address presented a wrong token."""
        sender, now = (_network(address), by_link), self._clock()
        tries = self._tries.get(sender)
        if tries is None or now >= tries.began + _PERIOD_SECONDS:
            tries = _Tries(now)
        self._tries[sender] = tries
        self._tries.move_to_end(sender)
        if len(tries.wrong) < MOST_GUESSES:
            tries.wrong.add(hashlib.sha256(token.encode("utf-8", "replace")).digest())
        if len(self._tries) > _MOST_ADDRESSES:
            self._tries.popitem(last=False)


def _network(address: str) -> str:
    """Returns what one machine can't change at will: its IPv6 network, or that it is this one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.is_loopback:  # every program may take any of them
        return "loopback"
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))

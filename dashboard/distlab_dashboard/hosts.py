"""The names under which the server answers, and the origins whose pages may use it.

A page of another site can give its own name the address 127.0.0.1 (DNS rebinding). The
browser then takes this server for that site's own, but still sends the site's name as `Host`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.shown import shown

EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not listened on
"""Addresses that stand for all addresses of this machine."""

_LAST_PORT: Final = 65_535
_DEFAULT_PORTS: Final = (None, 80, 443)
_LOOPBACK_NAME: Final = "localhost"
_NAME: Final = re.compile(r"[\w.-]+")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True)
class Host:
    """A host with its port, as a browser names them.

    Attributes:
      name: The name in small letters, or the address without brackets.
      port: The port; None for the scheme's own.
    """

    name: str
    port: int | None

    @classmethod
    def read(cls, text: str) -> Host | None:
        """Returns the host that a `Host` header or an origin names; None for anything else."""
        found = _HOST.fullmatch(text.lower())
        if found is None:
            return None
        name, port = found[1], found[2]
        return cls(name.strip("[]"), None if port is None else int(port))


class Hosts:
    """The names under which one server answers."""

    def __init__(self, address: str, port: int, origins: Iterable[Host]) -> None:
        self._port = port
        self._origins = tuple(origins)
        self._open = not is_loopback(address)
        self._names = {address.lower()} - {*EVERYWHERE}
        if address in EVERYWHERE:
            own = socket.gethostname().lower()
            self._names |= {own, f"{own}.local"}

    @property
    def origins(self) -> tuple[Host, ...]:
        """The further hosts that were named."""
        return self._origins

    def answers(self, header: str | None) -> bool:
        """Returns whether the server answers a request.

        The port is left open for the machine's own names, since a tunnel may have another one.
        """
        host = Host.read(header or "")
        return host is not None and (self._is_own(host.name) or self._is_named(host))

    def admits(self, origin: str, header: str | None) -> bool:
        """Returns whether a page may use the server."""
        host = _host_of(origin)
        if host is None:
            return False
        if host == Host.read(header or "") or self._is_named(host):
            return True
        return host.port == self._port and self._is_certain(host.name)

    def are_named(self, origin: str) -> bool:
        """Returns whether an origin is one of the further hosts."""
        host = _host_of(origin)
        return host is not None and self._is_named(host)

    def _is_own(self, name: str) -> bool:
        """Returns whether a request with this name was meant for this machine."""
        # An address is what the browser connected to: a site can't give itself another one's.
        return self._is_certain(name) or (self._open and _is_address(name))

    def _is_certain(self, name: str) -> bool:
        return name in self._names or is_loopback(name)

    def _is_named(self, host: Host) -> bool:
        return any(
            host.name == named.name
            and (host.port == named.port or (named.port is None and host.port in _DEFAULT_PORTS))
            for named in self._origins
        )


def _host_of(address: str) -> Host | None:
    """Returns the host of an origin or of a whole address, None where there is none."""
    try:
        return Host.read(urlsplit(address).netloc)
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if address == _LOOPBACK_NAME:
        return True
    return _is_address(address) and ipaddress.ip_address(address).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_address(address: object) -> None:
    """Checks that a server could listen on an address."""
    if not isinstance(address, str):
        raise ArgumentTypeError(
            f"address is a str such as '127.0.0.1', got {type(address).__name__}. Pass one of this "
            "machine's addresses, or none."
        )
    if address not in EVERYWHERE and not (_NAME.fullmatch(address) or _is_address(address)):
        raise ArgumentValueError(
            "address is a name or an IP address of this machine, such as 127.0.0.1 or ::1, without "
            f"http://, brackets and port, got {shown(address)}. The port is an argument of its own."
        )


def checked_origins(origins: object) -> tuple[Host, ...]:
    """Returns the hosts at which a proxy serves the page."""
    if not isinstance(origins, tuple | list) or not all(isinstance(one, str) for one in origins):
        raise ArgumentTypeError(
            f"origins is a sequence of host or host:port, got {shown(origins)}. Pass a tuple, such "
            "as origins=('hub.example.org',)."
        )
    return tuple(_checked(one) for one in origins)


def _checked(text: str) -> Host:
    host = Host.read(text)
    if host is None or (host.port or 1) > _LAST_PORT:
        raise ArgumentValueError(
            "An origin is the host at which browsers open the page, with its port unless that is "
            f"80 or 443, got {shown(text)}. Write hub.example.org or hub.example.org:8000, without "
            "https:// and path; patterns such as *.example.org can't be told from other sites."
        )
    return host

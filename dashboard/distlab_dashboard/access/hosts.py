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

_DEFAULT_PORTS: Final = (None, 80, 443)
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.ASCII)
# Bokeh makes regular expressions of a prefix, and a browser resolves segments of dots.
_SEGMENT: Final = re.compile(r"(?!\.+$)[\w.~%@:-]+", re.ASCII)


@dataclass(frozen=True)
class Host:
    """A host with its port, as a browser names them."""

    name: str
    port: int | None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"

    @classmethod
    def read(cls, text: str) -> Host | None:
        """Returns the host that a `Host` header or an origin names; None for anything else."""
        found = _HOST.fullmatch(text.lower())
        if found is None:
            return None
        name, port = found[1], found[2]
        return cls(name.strip("[]"), None if port is None else int(port))

    @classmethod
    def of(cls, address: str) -> Host | None:
        """Returns the host of a whole address or an origin, None where there is none."""
        try:
            return cls.read(urlsplit(address).netloc)
        except ValueError:
            return None


class Hosts:
    """The names under which one server answers."""

    def __init__(self, address: str, port: int, origins: Iterable[Host]) -> None:
        self.origins = tuple(origins)
        self._port = port
        self._open = not is_loopback(address)
        self._names = {address.lower()} - {*EVERYWHERE}
        if address in EVERYWHERE:
            own = socket.gethostname().lower()
            self._names |= {own, f"{own}.local"}

    def answers(self, header: str) -> bool:
        """Returns whether the server answers a request with this `Host`.

        The port is left open for the machine's own names, since a tunnel may have another one.
        """
        host = Host.read(header)
        if host is None:
            return False
        # An address is what the browser connected to: a site can't give itself another one's.
        own = self._is_certain(host.name) or (self._open and _is_address(host.name))
        return own or self.are_named(host)

    def admits(self, origin: str, header: str) -> bool:
        """Returns whether a page of an origin may use the server."""
        host = Host.of(origin)
        if host is None:
            return False
        if host == Host.read(header) or self.are_named(host):
            return True
        return host.port == self._port and self._is_certain(host.name)

    def are_named(self, host: Host | None) -> bool:
        """Returns whether a host is one of the further ones."""
        return host is not None and any(
            host.name == named.name
            and (host.port == named.port or (named.port is None and host.port in _DEFAULT_PORTS))
            for named in self.origins
        )

    def _is_certain(self, name: str) -> bool:
        return name in self._names or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if address == "localhost":
        return True
    return _is_address(address) and ipaddress.ip_address(address).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def checked_origins(origins: object) -> tuple[Host, ...]:
    """Returns the hosts at which a proxy serves the page."""
    if not isinstance(origins, tuple | list) or not all(isinstance(one, str) for one in origins):
        raise ArgumentTypeError(
            f"origins is a sequence of host or host:port, got {shown(origins)}. Pass a tuple, such "
            "as origins=('hub.example.org',)."
        )
    hosts = []
    for text in origins:
        host = Host.read(text)
        if host is None:
            raise ArgumentValueError(
                "An origin is the host at which browsers open the page, with its port unless that "
                f"is 80 or 443, got {shown(text)}. Write hub.example.org or hub.example.org:8000, "
                "without https:// and path; patterns such as *.example.org are not possible."
            )
        hosts.append(host)
    return tuple(hosts)


def checked_prefix(prefix: str) -> str:
    """Returns the path at which a proxy serves the page, without slashes at its ends."""
    path = prefix.strip("/")
    if path and not all(_SEGMENT.fullmatch(segment) for segment in path.split("/")):
        raise ArgumentValueError(
            "prefix is the path at which a proxy serves the page, such as 'user/ada/proxy/5006': "
            f"letters from a to z, digits and . _ ~ % @ : - between slashes, got {shown(prefix)}. "
            "Write other letters as the address has them, such as %C3%A9."
        )
    return path

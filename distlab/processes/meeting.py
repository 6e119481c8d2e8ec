"""The processes meet at the chief's address before JAX connects them.

JAX aborts a process whose peers do not come. Here each process says who it is, and the chief
answers all of them at once: with the list of all, or with what is wrong, which is an error that
names the one that is missing. The connections stay open; one closes when its process ends.

Anybody may reach the port. So the chief reads all connections side by side, each hello within a
limit of bytes and seconds, and passes over whatever is no hello.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from distlab.errors import ClusterError
from distlab.launching.environment import LOST
from distlab.processes.notices import announced
from distlab.text.shown import shown

Link: TypeAlias = socket.socket
"""An open connection to another process."""

MessageT = TypeVar("MessageT")


class Hello(msgspec.Struct, frozen=True):
    """The introduction of a process; `same` must be equal in all."""

    index: int
    host: str
    pid: int
    same: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True):
    """The chief's answer to all: their hellos and the coordination service's address, or an error.

    `one_machine` is True where all processes are on the chief's machine.
    """

    hellos: list[Hello] = []
    service: str = ""
    one_machine: bool = False
    error: str = ""


class Service(NamedTuple):
    """Addresses of the coordination service, `host:port`: to reach it, and to bind it."""

    address: str
    bound: str


_RETRY_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_HELLO_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 15.0
"""Others wait longer than the chief by this, so that the chief's answer arrives."""
_MOST_BYTES: Final = 1 << 20
_MOST_PENDING: Final = 256
"""Connections without a whole hello; with more, the oldest is closed. A worker comes again."""


def as_chief(
    address: str, hello: Hello | Mapping[str, Any], names: list[str], seconds: float
) -> tuple[Answer, list[Link], Service]:
    """Waits for all other processes, and sends them the coordination service's address."""
    own = msgspec.convert(hello, Hello)
    until = time.monotonic() + seconds
    present: dict[int, tuple[Hello, Link]] = {}

    def absent() -> list[str]:
        return [
            name
            for n, name in enumerate(names)
            if n and (n not in present or has_closed(present[n][1]))
        ]

    def waits_for() -> str:
        return f"{', '.join(absent())} to come to the chief at {address}{door.strangers_text()}"

    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(_listening(address))
        door = opened.enter_context(_Door(listener))
        reached: list[Link] = []
        try:
            with announced(waits_for, seconds):
                for other, link in door.arrivals(until):
                    reached.append(opened.enter_context(link))
                    _require_fit(own, other, names, present)
                    present[other.index] = (other, link)
                    if not absent():
                        break
            if missing := absent():
                raise ClusterError(
                    f"All {len(names)} processes of the cluster must start within {seconds:g} "
                    f"seconds, and {', '.join(missing)} did not come to the chief at {address}"
                    f"{door.strangers_text()}. Start every task, each with the same cluster in "
                    "TF_CONFIG."
                )
        except ClusterError as error:
            send_all(reached, Answer(error=str(error)))
            raise
        links = [present[n][1] for n in sorted(present)]
        one_machine = all(map(_has_ends_on_one_machine, links))
        service = _free_service("127.0.0.1" if one_machine else host_of(address))
        hellos = [Hello(said.index, said.host, said.pid) for said, _ in present.values()]
        everyone = [own, *sorted(hellos, key=lambda said: said.index)]
        answer = Answer(everyone, service.address, one_machine)
        send_all(links, answer)
        for link in links:
            link.settimeout(None)
        door.close()
        opened.pop_all()
        listener.close()
    return answer, links, service


def as_worker(
    address: str, hello: Hello | Mapping[str, Any], seconds: float
) -> tuple[Answer, Link]:
    """Goes to the chief, and waits until all others are there."""
    until = time.monotonic() + seconds
    failure: object = "nothing listens there"
    awaited = f"the chief to listen at {address}"
    with announced(lambda: awaited, seconds):
        while time.monotonic() < until:
            _require_none_lost()
            try:
                link = socket.create_connection(_parts(address), timeout=_HELLO_SECONDS)
            except OSError as error:
                failure = error
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                _send(link, hello)
                awaited = f"the chief at {address} to answer, when all others have come"
                while time.monotonic() < until + _ANSWER_SECONDS:
                    if is_readable(link, _LOOK_SECONDS):
                        break
                    _require_none_lost()
                answer = received(link, until + _ANSWER_SECONDS)
            except (OSError, ValueError) as error:  # the chief ended, or is another program
                failure = error
                link.close()
                time.sleep(_RETRY_SECONDS)
                continue
            except BaseException:
                link.close()
                raise
            if answer.error:
                link.close()
                raise ClusterError(answer.error)
            link.settimeout(None)
            return answer, link
    raise ClusterError(
        f"The chief of the cluster must start within {seconds:g} seconds, and did not answer at "
        f"{address} ({failure}). Start task 0, and check that this machine can reach it."
    )


def _listening(address: str) -> socket.socket:
    host, port = _parts(address)
    problem: OSError | None = None
    # Behind a service's name, as in Kubernetes, the address is not one of this machine.
    for place in (host, ""):
        try:
            family = socket.getaddrinfo(place or None, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((place, port), family=family, backlog=1024)
        except OSError as error:
            problem = problem or error
            if error.errno != errno.EADDRNOTAVAIL and not isinstance(error, socket.gaierror):
                break
    raise ClusterError(
        f"The chief listens at its address in the cluster, {address}, which can't be opened: "
        f"{problem}. Give the chief a free port of its machine."
    )


class _Door(contextlib.AbstractContextManager["_Door"]):
    """The connections to the chief that have not said a whole hello, read side by side."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ)
        self._pending: dict[Link, tuple[bytearray, float]] = {}  # the oldest first
        self._strangers = 0

    def arrivals(self, until: float) -> Iterator[tuple[Hello, Link]]:
        """Yields each process that comes, until the time is over."""
        while (left := until - time.monotonic()) > 0:
            _require_none_lost()
            for key, _ in self._ready.select(min(left, _LOOK_SECONDS)):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(link := key.fileobj, Link) and link in self._pending:
                    hello = self._read(link)
                    if hello is not None:
                        yield hello, link
            now = time.monotonic()
            for link in [link for link, (_, end) in self._pending.items() if end < now]:
                self._turn_away(link)

    def strangers_text(self) -> str:
        """Returns how many connections said nothing of distlab's, as a part of a sentence."""
        count = self._strangers
        return f" ({count} connections of other programs were closed)" if count else ""

    def close(self) -> None:
        """Closes the connections whose hello has not come."""
        for link in list(self._pending):
            self._turn_away(link)
        self._ready.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has closed again, or there are too many files
            link, _ = self._listener.accept()
            link.setblocking(False)
            self._pending[link] = bytearray(), time.monotonic() + _HELLO_SECONDS
            self._ready.register(link, selectors.EVENT_READ)
            if len(self._pending) > _MOST_PENDING:
                self._turn_away(next(iter(self._pending)))

    def _read(self, link: Link) -> Hello | None:
        """Returns a hello once all of it has come."""
        data = self._pending[link][0]
        try:
            part = link.recv(1 << 16)
            data += part
            if part and not part.endswith(b"\n") and len(data) <= _MOST_BYTES:
                return None
            hello = _decoded(data, Hello)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            self._turn_away(link)
            return None
        self._forget(link)
        link.settimeout(_HELLO_SECONDS)
        return hello

    def _turn_away(self, link: Link) -> None:
        self._strangers += 1
        self._forget(link)
        link.close()

    def _forget(self, link: Link) -> None:
        del self._pending[link]
        self._ready.unregister(link)


def _require_fit(
    own: Hello, other: Hello, names: list[str], present: dict[int, tuple[Hello, Link]]
) -> None:
    """Checks that a process may take part."""
    index, host = other.index, _unquoted(other.host)
    if not 0 < index < len(names):
        raise ClusterError(
            f"The processes besides the chief are {names[1:]}, and one on {host} is "
            f"number {index}. Start each task once, with the same cluster in TF_CONFIG."
        )
    known = present.get(index)
    if known is not None and not has_closed(known[1]):
        raise ClusterError(
            f"Each task runs in one process, and two came as {names[index]}: "
            f"{known[0].pid} on {known[0].host} and {other.pid} on {host}. "
            "Give each its own task index."
        )
    for what, mine in own.same.items():
        theirs = other.same.get(what)
        if theirs != mine:
            raise ClusterError(
                f"All processes must have the same {what}: the chief has {_unquoted(mine)}, and "
                f"{names[index]} on {host} has {_unquoted(theirs)}. Start all of them from one "
                "environment."
            )


def _unquoted(said: Any) -> str:
    """Returns what a process said, short and printable, for a message."""
    return shown(said).strip("'\"")


def _require_none_lost() -> None:
    """Raises an error once the launcher has noted that a process failed."""
    text = ""
    with contextlib.suppress(KeyError, OSError):
        text = Path(os.environ[LOST]).read_text()
    if text:
        raise ClusterError(
            f"All processes of a cluster start together, and {text}. Look at what it printed last, "
            "and start all of them again."
        )


def is_readable(link: Link, seconds: float = 0.0) -> bool:
    """Returns whether a message has come, or the end of the connection; waits so long."""
    waiting = select.poll()
    waiting.register(link, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def has_closed(link: Link) -> bool:
    """Returns whether the process at the other end has closed the connection, or ended."""
    try:
        return is_readable(link) and link.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):  # ValueError: it was closed here
        return True


def _has_ends_on_one_machine(link: Link) -> bool:
    """Returns whether the process at the other end is on this machine, by their addresses."""
    try:
        own, other = (str(name[0]) for name in (link.getsockname(), link.getpeername()))
    except OSError:  # it has ended
        return True
    return own == other or ipaddress.ip_address(other.removeprefix("::ffff:")).is_loopback


def _free_service(host: str) -> Service:
    with _listening(f"{_text(host)}:0") as listener:
        bound, port, *_ = listener.getsockname()
    return Service(f"{_text(host)}:{port}", f"{_text(bound)}:{port}")


def host_of(address: str) -> str:
    """Returns the host of an address, which a worker's must have with a port."""
    return _parts(address)[0]


def _parts(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        raise ClusterError(
            f"Each task of a cluster of several processes needs an address host:port, got "
            f"{address!r}. Add the port."
        )
    return host.strip("[]"), int(port)


def _text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def send_all(links: list[Link], answer: Answer) -> None:
    """Sends an answer to all; one that has ended shows by its closed connection."""
    for link in links:
        with contextlib.suppress(OSError):
            _send(link, answer)


def received(link: Link, until: float) -> Answer:
    """Returns the next answer of the chief; raises `OSError` or `ValueError` without one."""
    data = bytearray()
    while not data.endswith(b"\n"):
        link.settimeout(max(0.1, until - time.monotonic()))
        part = link.recv(1 << 16)
        data += part
        if not part:
            raise ValueError("the connection was closed before a whole message came")
        if len(data) > _MOST_BYTES:
            raise ValueError("the message is longer than one of distlab's")
    return _decoded(data, Answer)


def _send(link: Link, message: Hello | Answer | Mapping[str, Any]) -> None:
    link.sendall(msgspec.json.encode(message) + b"\n")


def _decoded(data: bytearray, kind: type[MessageT]) -> MessageT:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("the message is not one of distlab's") from error

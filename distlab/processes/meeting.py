"""The processes meet at the chief's address before JAX connects them.

JAX aborts a process whose peers do not come. Here each process says who it is, and the chief
answers all of them at once: with the list of all, or with what is wrong, which is an error that
names the one that is missing. The connections stay open; one closes when its process ends.
"""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from distlab.errors import ClusterError
from distlab.processes.notices import announced

Link: TypeAlias = socket.socket
"""An open connection to another process."""

Hello: TypeAlias = dict[str, Any]
"""The introduction of a process: its `index`, and what must be the same in all."""


class Service(NamedTuple):
    """Addresses of the coordination service, `host:port`: to reach it, and to bind it."""

    address: str
    bound: str


_RETRY_SECONDS: Final = 0.1
_HELLO_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 15.0
"""Others wait longer than the chief by this, so that the chief's answer arrives."""
_MOST_BYTES: Final = 1 << 20


def as_chief(
    address: str, hello: Hello, names: list[str], seconds: float
) -> tuple[list[Hello], list[Link], Service]:
    """Waits for all other processes, and sends them the coordination service's address."""
    until = time.monotonic() + seconds
    present: dict[int, tuple[Hello, Link]] = {}

    def absent() -> list[str]:
        return [name for n, name in enumerate(names) if n and n not in present]

    def waits_for() -> str:
        return f"{', '.join(absent())} to come to the chief at {address}"

    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(_listening(address))
        reached: list[Link] = []
        try:
            with announced(waits_for, seconds):
                for other, link in _arrivals(listener, until):
                    reached.append(opened.enter_context(link))
                    _require_fit(hello, other, names, present)
                    present[other["index"]] = (other, link)
                    if not absent():
                        break
            if missing := absent():
                raise ClusterError(
                    f"All {len(names)} processes of the cluster must start within {seconds:g} "
                    f"seconds, and {', '.join(missing)} did not come to the chief at {address}. "
                    "Start every task, each with the same cluster in TF_CONFIG."
                )
        except ClusterError as error:
            for link in reached:
                with contextlib.suppress(OSError):
                    _send(link, {"error": str(error)})
            raise
        service = _free_service(address)
        hellos = [hello, *(present[n][0] for n in sorted(present))]
        links = [present[n][1] for n in sorted(present)]
        for link in links:
            _send(link, {"hellos": hellos, "service": service.address})
            link.settimeout(None)
        opened.pop_all()
        listener.close()
    return hellos, links, service


def as_worker(address: str, hello: Hello, seconds: float) -> tuple[list[Hello], Link, str]:
    """Goes to the chief, and waits until all others are there."""
    until = time.monotonic() + seconds
    failure: object = "nobody listens there"
    awaited = f"the chief to listen at {address}"
    with announced(lambda: awaited, seconds):
        while time.monotonic() < until:
            try:
                link = socket.create_connection(_parts(address), timeout=_HELLO_SECONDS)
            except OSError as error:
                failure = error
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                _send(link, hello)
                awaited = f"the chief at {address} to answer, when all others have come"
                link.settimeout(max(0.1, until - time.monotonic()) + _ANSWER_SECONDS)
                answer = _received(link)
            except (OSError, ValueError) as error:  # the chief ended, or is another program
                failure = error
                link.close()
                time.sleep(_RETRY_SECONDS)
                continue
            except BaseException:
                link.close()
                raise
            if "error" in answer:
                link.close()
                raise ClusterError(answer["error"])
            link.settimeout(None)
            return answer["hellos"], link, answer["service"]
    raise ClusterError(
        f"The chief of the cluster must start within {seconds:g} seconds, and did not answer at "
        f"{address} ({failure}). Start task 0, and look whether this machine reaches that address."
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


def _arrivals(listener: socket.socket, until: float) -> Iterator[tuple[Hello, Link]]:
    """Yields each process that comes, until the time is over."""
    while (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            link, _ = listener.accept()
        except TimeoutError:
            return
        link.settimeout(_HELLO_SECONDS)
        try:
            hello = _received(link)
            if not isinstance(hello.get("index"), int):
                raise ValueError
        except (OSError, ValueError, AttributeError):  # no process of the cluster
            link.close()
            continue
        yield hello, link


def _require_fit(
    own: Hello, other: Hello, names: list[str], present: dict[int, tuple[Hello, Link]]
) -> None:
    """Checks that a process may take part."""
    index, host = other["index"], other.get("host")
    if not 0 < index < len(names):
        raise ClusterError(
            f"The processes besides the chief are {names[1:]}, and one on {host} is "
            f"number {index}. Start each task once, with the same cluster in TF_CONFIG."
        )
    known = present.get(index)
    if known is not None and not has_closed(known[1]):
        raise ClusterError(
            f"Each task runs in one process, and two came as {names[index]}: "
            f"{known[0].get('pid')} on {known[0].get('host')} and {other.get('pid')} on {host}. "
            "Give each its own task index."
        )
    for what, mine in own["same"].items():
        theirs = other.get("same", {}).get(what)
        if theirs != mine:
            raise ClusterError(
                f"All processes must have the same {what}: the chief has {mine}, and "
                f"{names[index]} on {host} has {theirs}. Start all of them from one environment."
            )


def has_closed(link: Link) -> bool:
    """Returns whether the process at the other end has closed the connection, or ended."""
    try:
        waiting = select.poll()
        waiting.register(link, select.POLLIN)
        return bool(waiting.poll(0)) and link.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):  # ValueError: it was closed here
        return True


def _free_service(address: str) -> Service:
    host, _ = _parts(address)
    with _listening(f"{_text(host)}:0") as listener:
        bound, port, *_ = listener.getsockname()
    return Service(f"{_text(host)}:{port}", f"{_text(bound)}:{port}")


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


def _send(link: Link, message: Hello) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


def _received(link: Link) -> Hello:
    data = b""
    while not data.endswith(b"\n"):
        part = link.recv(1 << 16)
        data += part
        if not part or len(data) > _MOST_BYTES:
            raise ValueError("the connection was closed before a whole message came")
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("the message is not one of distlab's")
    return message

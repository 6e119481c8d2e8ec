"""A server whose start is interrupted, as by Ctrl-C."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import distlab as dl
from distlab_dashboard import DashboardServer, serve
from tests.patience import wait_until


class Interrupted(threading.Event):
    """An event for which Ctrl-C ends the waiting."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["_bind", "_serve"])
def test_a_server_whose_start_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """While the thread takes a port, and before it has a loop."""
    go_on = threading.Event()
    real, make = getattr(DashboardServer, place), DashboardServer.__init__
    made: list[DashboardServer] = []

    def held_up(server: DashboardServer, port: int | None) -> object:
        go_on.wait(30)
        return real(server, port)

    def with_interrupt(server: DashboardServer, *given: object) -> None:
        make(server, *given)  # type: ignore[arg-type]
        server._ready = Interrupted()
        made.append(server)

    before = set(threading.enumerate())
    with dl.record(tmp_path / "run") as recording:
        own = set(threading.enumerate()) - before
        monkeypatch.setattr(DashboardServer, place, held_up)
        monkeypatch.setattr(DashboardServer, "__init__", with_interrupt)
        monkeypatch.setattr("distlab_dashboard.server._STOP_SECONDS", 0.2)
        with pytest.raises(KeyboardInterrupt):
            serve(recording, port=0)
        go_on.set()
        wait_until(lambda: set(threading.enumerate()) <= before | own, "threads to end")
        (server,) = made
        server.stop()  # has no effect

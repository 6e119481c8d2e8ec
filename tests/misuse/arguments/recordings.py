"""Arguments of recordings, runs and views."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World


@row("record.path", "none text")
def _(w: World, v: Any) -> None:
    dl.record(v, overwrite=True).close()


@row("record.name", "none text")
def _(w: World, v: Any) -> None:
    dl.record(None, name=v).close()


@row("record.total_steps", "none")
def _(w: World, v: Any) -> None:
    dl.record(None, total_steps=v).close()


@row("Recording.log.step", "none dict")
def _(w: World, v: Any) -> object:
    with dl.record(None) as recording:
        recording.log(v, loss=1.0)
    return None


@row(
    "Recording.log.a_value",
    "negative big fraction nan true scalar_array",
    tells="per_replica of_other donated leaked",
)
def _(w: World, v: Any) -> object:
    with dl.record(None) as recording:
        recording.log(loss=v)
    return None


@row("Recording.capture.steps")
def _(w: World, v: Any) -> object:
    with dl.record(None) as recording:
        return recording.capture(v)


@row("Recording.capture.seconds", "fraction")
def _(w: World, v: Any) -> object:
    with dl.record(None) as recording:
        return recording.capture(seconds=v)


@row("Recording.close.status")
def _(w: World, v: Any) -> object:
    with dl.record(None) as recording:
        recording.close(v)
    return None


@row("Run.open.path", tells="text")
def _(w: World, v: Any) -> object:
    return dl.Run.open(v)


@row("Run.since.cursor")
def _(w: World, v: Any) -> object:
    with _run(w) as run:
        return run.since(v)


@row("Run.events.kind", "none")
def _(w: World, v: Any) -> object:
    with _run(w) as run:
        return list(run.events(v))


@row("Run.export.path")
def _(w: World, v: Any) -> object:
    with _run(w) as run:
        return run.export(v)


def _run(w: World) -> dl.Run:
    folder = w.folder / "recorded"
    if not folder.exists():
        with dl.record(folder) as recording:
            recording.log(loss=1.0)
    return dl.Run.open(folder)


@row("watch.source", "none")
def _(w: World, v: Any) -> object:
    return dl.watch(v)

"""Variables that several processes placed, each on its own devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from distlab.events import Placement


class Placements:
    """Joins the placements of one variable: it lies on the devices of all processes."""

    def __init__(self) -> None:
        self._placed: dict[int, Placement] = {}
        self._holders: dict[int, set[int]] = {}

    def add(self, process: int, event: Placement, devices: Sequence[str]) -> Iterator[Placement]:
        """Adds what a process placed or freed, and yields what changed for the whole run."""
        holders = self._holders.setdefault(event.array, set())
        if event.action == "free":
            holders.discard(process)
            if not holders and self._placed.pop(event.array, None) is not None:
                yield event
            return
        holders.add(process)
        known = self._placed.get(event.array)
        sizes = dict.fromkeys(devices, 0) if known is None else _sizes(known)
        joined = sizes | _sizes(event)
        if known is None or joined != sizes:
            self._placed[event.array] = placed = msgspec.structs.replace(
                event, devices=list(joined), bytes_per_device=list(joined.values())
            )
            yield placed


def _sizes(event: Placement) -> dict[str, int]:
    return dict(zip(event.devices, event.bytes_per_device, strict=False))

"""Memory of the devices, and how busy they are."""

from __future__ import annotations

from collections.abc import Sequence

from distlab.folds import DeviceColumns
from distlab.folds.device_part import MOST_ROWS
from distlab.page.facts.amounts import NOTHING, Facts, first_rows
from distlab.text.bytes import bytes_text
from distlab.text.units import plain, share_text


def device_facts(devices: DeviceColumns) -> Facts:
    """Returns the memory of the devices, and the parts that can be chosen."""
    process = devices["process_bytes"]
    return {
        "marks_newest": not devices["ended"],
        "simulated": devices["simulated"],
        "device_memory": _memory(devices),
        "process_memory": bytes_text(int(process[-1])) if len(process) else NOTHING,
        "gpu_use": _gpu_use(devices),
        "device_parts": _parts(devices["device"]),
        "has_parts": len(devices["device"]) > MOST_ROWS,
    }


def _memory(devices: DeviceColumns) -> str:
    memory = devices["memory"]
    if memory is None:
        return "not available on this platform"
    texts = (
        f"{plain(name, 18)} {bytes_text(size)}"
        for name, size in zip(devices["device"], memory, strict=True)
    )
    return ", ".join(first_rows(texts, len(memory)))


def _gpu_use(devices: DeviceColumns) -> str:
    used, utilization = devices["used"], devices["utilization"]
    if used is None or utilization is None:
        return ""
    return ", ".join(
        f"{plain(name, 18)} {bytes_text(size)}, {share_text(share)}"
        for name, size, share in zip(devices["device"], used, utilization, strict=True)
    )


def _parts(names: Sequence[str]) -> list[list[str]]:
    if len(names) <= MOST_ROWS:
        return []
    begins = range(0, len(names), MOST_ROWS)
    ends = [min(begin + MOST_ROWS, len(names)) - 1 for begin in begins]
    return [
        [str(begin), f"{plain(names[begin], 24)} to {plain(names[end], 24)}"]
        for begin, end in zip(begins, ends, strict=True)
    ]

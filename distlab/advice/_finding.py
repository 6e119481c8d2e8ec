"""What all finders share: making an advice, and a few words for people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distlab.events import Advice
from distlab.text.bytes import bytes_text


def advice(
    cause: str,
    subject: str,
    text: str,
    remedy: str,
    *,
    evidence: dict[str, float],
    page: str,
    share: float,
    steps: Sequence[int] | np.ndarray = (),
    time_ns: int = 0,
) -> Advice:
    """Makes an advice; see `distlab.events.Advice` for what its fields mean."""
    return Advice(
        time_ns=time_ns,
        cause=cause,
        subject=subject,
        text=text,
        remedy=remedy,
        evidence={name: float(value) for name, value in evidence.items()},
        steps=[int(steps[0]), int(steps[-1])] if len(steps) else [],
        page=page,
        share=min(max(float(share), 0.0), 1.0),
    )


def numbered(numbers: Sequence[int]) -> str:
    """Writes numbers as people do: `"2"`, `"2 and 5"`, `"2, 5 and 7"`, `"4 to 7"`."""
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]} to {ordered[-1]}"
    if len(ordered) < 2:
        return "".join(map(str, ordered))
    return f"{', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def replicas(numbers: Sequence[int]) -> str:
    """Names replicas: `"replica 2"`, `"replicas 2 and 5"`."""
    return f"replica{'s' * (len(numbers) > 1)} {numbered(numbers)}"


def ms(nanoseconds: float) -> str:
    """Writes a time in milliseconds."""
    milliseconds = nanoseconds / 1e6
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def percent(share: float) -> str:
    """Writes a share."""
    return f"{share:.0%}"


def evidence_text(one: Advice) -> str:
    """Returns an advice's evidence for people: `"late 20 ms, last share 95%"`."""
    return ", ".join(_number(name, value) for name, value in one.evidence.items())


def _number(name: str, value: float) -> str:
    words, _, unit = name.replace("_", " ").rpartition(" ")
    if unit == "ms":
        return f"{words} {ms(value * 1e6)}"
    if unit == "s" and words:
        return f"{words} {value:.3g} s"
    if unit == "share":
        return f"{name.replace('_', ' ')} {percent(value)}"
    if "bytes" in name:
        return f"{name.replace('_', ' ')} {bytes_text(value)}"
    return f"{name.replace('_', ' ')} {value:,.4g}"

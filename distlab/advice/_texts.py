"""A constructor of advice, and texts of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distlab.events import Advice
from distlab.folds.arrays import Ints
from distlab.text.bytes import bytes_text


def new_advice(
    cause: str,
    subject: str,
    text: str,
    remedy: str,
    *,
    evidence: Mapping[str, float],
    page: str,
    share: float,
    steps: Sequence[int] | Ints = (),
    time_ns: int = 0,
    source: str = "",
    saves_s: float = 0.0,
) -> Advice:
    """Makes an advice; `distlab.events.Advice` documents the fields."""
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
        source=source,
        saves_s=max(float(saves_s), 0.0),
    )


def numbers_text(numbers: Sequence[int]) -> str:
    """Returns numbers as text: `"2"`, `"2 and 5"`, `"2, 5 and 7"`, `"4 to 7"`."""
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]} to {ordered[-1]}"
    if len(ordered) < 2:
        return "".join(map(str, ordered))
    return f"{', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def replicas_text(numbers: Sequence[int]) -> str:
    """Returns the names of replicas: `"replica 2"`, `"replicas 2 and 5"`."""
    return f"replica{'s' * (len(numbers) > 1)} {numbers_text(numbers)}"


def at(source: str) -> str:
    """Returns a line of the program in brackets after a space; nothing where it is not known."""
    return f" ({source})" if source else ""


def ms_text(nanoseconds: float) -> str:
    """Returns a time in milliseconds as text."""
    milliseconds = nanoseconds / 1e6
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def percent_text(share: float) -> str:
    """Returns a share as text, such as `"63 %"`."""
    return f"{100 * share:.0f} %"


def evidence_text(advice: Advice) -> str:
    """Returns the evidence of an advice as one line: its numbers, what it saves, and the line.

    Args:
      advice: The advice.

    Example:
      >>> from distlab.advice import Advice, evidence_text
      >>> evidence_text(Advice(
      ...     time_ns=0, cause="slow_replica", subject="replica 3", text="", remedy="",
      ...     evidence={"late_ms": 20.0, "last_share": 0.95}, steps=[0, 19], page="devices",
      ...     share=0.4))
      'late 20 ms, last share 95 %'
    """
    parts = [_number_text(name, value) for name, value in advice.evidence.items()]
    if advice.saves_s:
        parts.append(f"saves up to {ms_text(advice.saves_s * 1e9)} a step")
    if advice.source and advice.source not in advice.subject + advice.text:
        parts.append(advice.source)
    return ", ".join(parts)


def _number_text(name: str, value: float) -> str:
    words, _, unit = name.replace("_", " ").rpartition(" ")
    if unit == "ms":
        return f"{words} {ms_text(value * 1e6)}"
    if unit == "s" and words:
        return f"{words} {value:.3g} s"
    if unit == "share":
        return f"{name.replace('_', ' ')} {percent_text(value)}"
    if "bytes" in name:
        return f"{name.replace('_', ' ')} {bytes_text(value)}"
    return (
        f"{name.replace('_', ' ')} {value:,.0f}"
        if value.is_integer()
        else (f"{name.replace('_', ' ')} {value:,.4g}")
    )

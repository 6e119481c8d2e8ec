"""Arguments that are True or False."""

from __future__ import annotations

from typing import Any

from distlab.text.shown import shown


def flag_refusal(name: str, value: Any) -> str | None:
    """Returns why an argument is refused that is not True or False: "no" would count as true."""
    if isinstance(value, bool):
        return None
    return f"{name} must be True or False, got {shown(value)}. Write {name}=True, or leave it out."

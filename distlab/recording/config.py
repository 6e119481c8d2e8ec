"""The settings of a run that its program states: learning rate, batch size and the like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.shown import shown

Setting: TypeAlias = str | int | float | bool | None

_MOST: Final = 1_000
"""The most settings of a run."""


def checked_config(config: Any) -> dict[str, Setting]:
    """Returns settings by name, of a nest as `model.layers`; other objects as they print."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise ArgumentTypeError(
            f"config must be a mapping of names to settings, got {shown(config)}. Pass a dict, "
            "such as vars(args) of argparse or dataclasses.asdict(config)."
        )
    found = dict(_settings(config))
    if len(found) > _MOST:
        raise ArgumentValueError(
            f"config must have at most {_MOST:,} settings, got {len(found):,}. Pass what differs "
            "between runs."
        )
    return found


def _settings(config: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    for name, value in config.items():
        called = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{called}.")
        else:
            yield called, _setting(value)


def _setting(value: Any) -> Setting:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return str(value) if isinstance(value, str) else shown(value)

"""Colours of numbered things, legible on light and dark pages."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import Final

PALETTE: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8c8c8c",
)  # fmt: skip
"""Okabe and Ito's colours, which colour-blind people can distinguish; with a darker yellow for
white backgrounds, and a grey instead of black for black ones."""

_STOPS: Final = ((0x44, 0x2F, 0x7E), (0x3B, 0x67, 0xA8), (0x21, 0x91, 0x8C), (0x6C, 0xC2, 0x4A),
                 (0xF2, 0xD3, 0x2B))  # fmt: skip
"""From violet by blue and green to yellow, as viridis."""


def block_colours(cuts: Sequence[int]) -> list[str]:
    """Returns a colour for each block of an array, in C order.

    Up to 8 blocks have the palette's colours. More have a ramp along the first dimension that is
    divided, and blocks along the others are lighter and lighter.
    """
    divided = [cut for cut in cuts if cut > 1]
    count = math.prod(divided)
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    first, others = divided[0], count // divided[0]
    if others == 1:
        return [_hex(_on_ramp(block / (first - 1))) for block in range(first)]
    return [
        _hex(_shade(block / max(first, 2), other / (others - 1)))
        for block in range(first)
        for other in range(others)
    ]


def ink_on(colour: str) -> str:
    """Returns white or black, whichever has more contrast on a colour such as `"#0072b2"`."""
    weights = zip((0.2126, 0.7152, 0.0722), bytes.fromhex(colour[1:]), strict=True)
    luminance = sum(weight * (part / 255) ** 2.2 for weight, part in weights)
    return "#ffffff" if luminance < 0.195 else "#101418"


def _on_ramp(share: float) -> tuple[float, ...]:
    stop = min(int(share * (len(_STOPS) - 1)), len(_STOPS) - 2)
    part = share * (len(_STOPS) - 1) - stop
    return tuple(
        low + part * (high - low) for low, high in zip(_STOPS[stop], _STOPS[stop + 1], strict=True)
    )


def _shade(hue: float, light: float) -> tuple[float, ...]:
    parts = colorsys.hls_to_rgb((0.58 + 0.85 * hue) % 1, 0.34 + 0.42 * light, 0.48)
    return tuple(255 * part for part in parts)


def _hex(colour: Sequence[float]) -> str:
    return "#" + bytes(round(part) for part in colour).hex()

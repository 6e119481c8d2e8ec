"""Colours of the charts, for light and dark backgrounds.

Glyphs have colours with enough contrast on both. Everything else (axes, grids, titles,
legends) has its colours from CSS variables, which Bokeh reads when it paints: `CSS` sets
them by the system's setting, by `data-theme` on the page, and by the themes of JupyterLab
and VS Code. Without that CSS charts have greys with enough contrast on both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from distlab.text.colours import PALETTE

INK = "#7d7d7d"
"""Text inside a plot: contrast above 4 on white and on the dark background."""

FAINT = "#8c96a5"
"""Outlines and empty places, used with a low alpha."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
"""Fonts of all text; a glyph needs it as `bokeh.core.properties.value(FONT)`."""

_LIGHT = {"strong": "#1b2330", "text": "#56606f", "line": "#dfe4ea", "card": "#ffffff"}
_DARK = {"strong": "#e8edf4", "text": "#a3aebd", "line": "#2b3440", "card": "#161c25"}


def _variables(colours: dict[str, str]) -> str:
    strong, text, line, card = (colours[key] for key in ("strong", "text", "line", "card"))
    values = {
        "text-color": strong,
        "axis-label-text-color": text,
        "major-label-text-color": text,
        "label-text-color": text,
        "title-text-color": text,
        "grid-line-color": line,
        "outline-line-color": "transparent",
        "background-fill-color": "transparent",
        "border-fill-color": "transparent",
    }
    own = {"strong": strong, "text": text, "line": line, "card": card}
    return "".join(
        f"--{prefix}-{name}: {value};"
        for prefix, pairs in (("bk", values), ("dl", own))
        for name, value in pairs.items()
    )


CSS = f"""
:root {{ color-scheme: light; {_variables(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ color-scheme: dark; {_variables(_DARK)} }}
}}
:root[data-theme="light"] {{ color-scheme: light; {_variables(_LIGHT)} }}
:root[data-theme="dark"] {{ color-scheme: dark; {_variables(_DARK)} }}
body[data-jp-theme-light="true"], body.vscode-light {{ {_variables(_LIGHT)} }}
body[data-jp-theme-light="false"], body.vscode-dark {{ {_variables(_DARK)} }}
.bk-Tooltip {{
  --tooltip-color: var(--dl-card) !important; --tooltip-text: var(--dl-strong) !important;
  --tooltip-border: var(--dl-line) !important; --tooltip-arrow-color: var(--dl-line) !important;
  border-radius: 8px;
}}
"""
"""Style sheet of the page around charts, not of a chart's own shadow root."""


def css_within(scope: str) -> str:
    """Returns the style sheet for charts on a page that is not distlab's own.

    It changes nothing outside of `scope`. A notebook's theme has precedence over the
    system's setting.
    """
    light, dark = _variables(_LIGHT), _variables(_DARK)
    return f"""{scope} {{ {light} }}
@media (prefers-color-scheme: dark) {{ {scope} {{ {dark} }} }}
body[data-jp-theme-light="true"] {scope}, body.vscode-light {scope} {{ {light} }}
body[data-jp-theme-light="false"] {scope}, body.vscode-dark {scope} {{ {dark} }}
"""


def colour(number: int) -> str:
    """Returns the colour of the replica or curve with this number."""
    return PALETTE[number % len(PALETTE)]


def shades(full: str, number: int) -> list[str]:
    """Returns colours of shares from 0 to 1: a faint track, then pale to the full colour."""
    shares = np.linspace(0, 1, number)
    alphas = np.round(255 * np.where(shares > 0, 0.25 + 0.75 * shares, 0.16)).astype(int)
    return [
        f"{full if share else FAINT}{alpha:02x}"
        for share, alpha in zip(shares, alphas, strict=True)
    ]


def ramp(share: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Returns the colour of each share, from dark blue (0) to yellow (1), by cividis."""
    from bokeh.palettes import Cividis256

    places = np.clip(np.nan_to_num(np.asarray(share, np.float64)) * 255, 0, 255).astype(int)
    colours: npt.NDArray[np.str_] = np.array(Cividis256)[places]
    return colours


def ink_on(share: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Returns white or black, whichever has more contrast on `ramp` at each share."""
    return np.where(np.asarray(share, np.float64) < 0.49, "#ffffff", "#101418")

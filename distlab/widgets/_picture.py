"""The picture that stays in the notebook: a view without scripts."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from distlab.charts.placement import layout_text
from distlab.charts.theme import ink_on, ramp
from distlab.folds import (
    BatchDetail,
    Folds,
    MetricColumns,
    PlacementColumns,
    ReductionColumns,
    StepColumns,
    TimelineColumns,
)
from distlab.page.facts.cards import reduction_rows
from distlab.text.bytes import bytes_text
from distlab.text.metric_names import by_interest, is_loss
from distlab.text.png import data_uri
from distlab.text.units import plain
from distlab.widgets._heat_strips import strips
from distlab.widgets._replica_table import replica_table
from distlab.widgets._static_html import image, line, swatch, table
from distlab.widgets._summary import Summary

_MOST_REDUCTIONS = 10
_MOST_COLUMNS = 8
_CURVE = (320, 60)
_TIMELINE_WIDTH = 420
_CURVE_COLOUR = (0x00, 0x9E, 0x73)


def picture(folds: Folds, batch: BatchDetail | None, summary: Summary) -> str:
    """Returns a view as HTML that needs neither script nor style sheet."""
    run = (
        f"<strong>{escape(summary.name)}</strong>: {escape(summary.status)}, "
        f"{escape(summary.steps)}"
    )
    sentence, _ = summary.headline()
    heading = (run, escape(sentence)) if sentence else (run,)
    parts = [f"<p style='margin:4px 0'>{text}</p>" for text in heading]
    if "loss" in summary.charts:
        parts.append(_loss(folds.columns("metrics")))
    if {"batches", "devices"} & set(summary.charts):
        parts.append(replica_table(batch, folds.columns("devices"), summary))
    if "reductions" in summary.charts:
        parts.append(_reductions(folds.columns("reductions")))
    if "placement" in summary.charts:
        parts.append(_placement(folds.columns("placement")))
    if "captured" in summary.charts and summary.captured:
        names, shares = zip(*summary.captured, strict=True)
        cells = {"Device": map(escape, names), "Computing · waiting": map(escape, shares)}
        parts.append(table({title: list(texts) for title, texts in cells.items()}, "devices"))
    if "rates" in summary.charts:
        parts.append(_rates(folds.columns("steps"), summary))
    if "timeline" in summary.charts:
        parts.append(_timeline(folds.columns("timeline")))
    parts.append(summary.grids)
    parts += [
        f"<p style='margin:2px 0'><small>{escape(note)}</small></p>" for note in summary.notes
    ]
    return "".join(parts)


def _reductions(columns: ReductionColumns) -> str:
    rows = reduction_rows(columns)
    if not rows:
        return ""
    titles = ("Combined across replicas", "Where", "Times", "Bytes each time")
    cells = zip(*([escape(text) for text in row] for row in rows[:_MOST_REDUCTIONS]), strict=True)
    left = len(rows) - _MOST_REDUCTIONS
    more = line(f"and {left} other kinds of reductions") if left > 0 else ""
    return table(dict(zip(titles, map(list, cells), strict=True)), "reductions") + more


def _placement(columns: PlacementColumns) -> str:
    """Returns a table of variables by devices: darker cells hold less, empty ones nothing."""
    sizes = columns["bytes"]
    if not len(sizes):
        return ""
    shown: dict[str, list[str]] = {
        "Variable": [escape(plain(name, 30)) for name in columns["name"]],
        "One copy": [
            escape(f"{dtype}[{', '.join(map(str, shape))}] {layout_text(layout)}")
            for dtype, shape, layout in zip(
                columns["dtype"], columns["shape"], columns["layout"], strict=True
            )
        ],
    }
    shares = np.log1p(sizes) / max(1.0, np.log1p(sizes.max()))
    runs = _alike(sizes)
    for place, end in runs[:_MOST_COLUMNS]:
        papers, inks = ramp(shares[:, place]), ink_on(shares[:, place])
        names = [plain(name, 18) for name in columns["device"][place:end]]
        times = "" if len(names) == 1 else f"{len(names)} \u00d7 "
        shown[names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"] = [
            swatch(f"{times}{bytes_text(int(size))}", str(paper), str(ink)) if size else ""
            for size, paper, ink in zip(sizes[:, place], papers, inks, strict=True)
        ]
    left = len(columns["device"]) - runs[:_MOST_COLUMNS][-1][1]
    return table(shown, "variables") + (line(f"and {left} more devices") if left > 0 else "")


def _alike(sizes: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Returns the ranges of neighbouring devices that hold the same bytes."""
    devices = sizes.shape[1]
    changes = [n for n in range(1, devices) if (sizes[:, n] != sizes[:, n - 1]).any()]
    return list(pairwise([0, *changes, devices]))


def _rates(steps: StepColumns, summary: Summary) -> str:
    """Returns a curve of steps per second, and the newest rates."""
    rates = np.asarray(steps["steps_per_s"], np.float64)
    text = "; ".join(f"{name}: {amount}" for name, amount in summary.rates)
    if len(rates) < 2:
        return line(text) if text else ""
    curve = _curve(rates, f"Steps per second, at most {rates.max():.3g}")
    return f"<p style='margin:4px 0'>{curve}</p>{line(text)}"


def _loss(metrics: MetricColumns) -> str:
    """Returns the curve of the loss that people look for first."""
    name = next(filter(is_loss, by_interest(metrics["name"])), None)
    values = np.zeros(0) if name is None else metrics["value"][metrics["name"].index(name)]
    values = values[np.isfinite(values)]
    if name is None or len(values) < 2:
        return ""
    text = f"{plain(name, 24)}, from {values[0]:.3g} to {values[-1]:.3g}"
    return f"<p style='margin:4px 0'>{_curve(values - min(values.min(), 0.0), text)}</p>"


def _timeline(columns: TimelineColumns) -> str:
    """Returns a lane for input, one for calls of `run`, and one for each device."""
    count = len(columns["busy"])
    used = min(count, round((columns["now_s"] - columns["cell_start_s"]) / columns["cell_s"]) + 1)
    if not columns["step_count"] or not used:
        return ""
    lanes = [columns["waited"], columns["calls"], *columns["busy"].T]
    shown = {
        "Lane": ["input", "calls", *(escape(plain(name, 18)) for name in columns["device"])],
        "Share of the time: waiting for a batch; in run; a step in flight": strips(
            np.stack(lanes, axis=1)[:used], _TIMELINE_WIDTH
        ),
    }
    return table(shown, "lanes")


def _curve(rates: npt.NDArray[np.float64], text: str) -> str:
    wide, high = _CURVE
    at = np.interp(np.linspace(0, len(rates) - 1, wide), np.arange(len(rates)), rates)
    filled = np.round(at / max(float(at.max()), 1e-9) * (high - 2)).astype(int)
    below = np.arange(high)[::-1, None] <= filled[None, :]
    inside = below.copy()
    inside[1:] &= below[:-1]
    inside[:, 1:] &= below[:, :-1]
    inside[:, :-1] &= below[:, 1:]
    edge = below & ~inside
    pixels = np.zeros((high, wide, 4), np.uint8)
    pixels[..., :3] = _CURVE_COLOUR
    pixels[..., 3] = np.where(edge, 255, np.where(below, 70, 0))
    return image(data_uri(pixels), wide, text)

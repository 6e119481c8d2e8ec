"""The effects of an explorer's choices: tables with small images, and text."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from distlab.charts.theme import colour
from distlab.page.facts.batch import share_of
from distlab.programs.collectives import wire_bytes
from distlab.strategies.what_if import Choices, Division, Movement, divide, move, place
from distlab.text.bytes import bytes_text
from distlab.text.png import data_uri
from distlab.text.units import count_text, counted
from distlab.widgets._static_html import NO_BREAK, image, line, table

_MOST_BATCHES = 3
_BAR = (84, 14)
_MOST_TILES = 14
_FREE = (0x8C, 0x96, 0xA5, 90)
_DEFAULT = "NcclAllReduce"
_NOTE = (
    "Divided, placed and traced by the code of a real run; nothing ran on a device. "
    "Bytes sent count a message once, and an all-reduce as a ring."
)


def picture(choices: Choices) -> str:
    """Returns the effects as HTML that needs neither script nor style sheet."""
    division, placed = divide(choices), place(choices)
    shown = _shown(division)
    columns = {"Replica": [str(replica) for replica in range(choices.replicas)]}
    for step in shown:
        columns[_title(step, division)] = [
            _cell(division, step, replica) for replica in range(choices.replicas)
        ]
    columns["Variable"] = [escape(bytes_text(size)) if size else "\u2013" for size in placed]
    marks = [colour(replica) for replica in range(choices.replicas)]
    return "".join(
        [
            *(line(text) for text in _sentences(choices, division, placed)),
            table(columns, "replicas", marks),
            line(f"Adding up the variable's gradients of {choices.replicas} replicas in a step:"),
            _movements(choices),
            f"<p style='margin:2px 0'><small>{escape(_NOTE)}</small></p>",
        ]
    )


def text(choices: Choices) -> str:
    """Returns the effects as plain text."""
    division, placed = divide(choices), place(choices)
    lines = _sentences(choices, division, placed)
    for step in _shown(division):
        sizes = ", ".join(share_of(size, division.share) for size in division.sizes[step])
        lines.append(f"  {_title(step, division)}: {sizes}")
    for name, kinds, operand, busiest, everyone in _movement_rows(choices):
        lines.append(f"  {name}: {kinds} of {operand}; one sends {busiest}, all send {everyone}")
    return "\n".join([*lines, _NOTE])


def _shown(division: Division) -> list[int]:
    """Returns the steps to show: the first ones and the last."""
    last = len(division.sizes) - 1
    return sorted({*range(min(_MOST_BATCHES - 1, last)), last})


def _title(step: int, division: Division) -> str:
    last = step == len(division.sizes) - 1
    return f"Step {count_text(step)}{' (last)' if last else ''}"


def _sentences(choices: Choices, division: Division, placed: list[int]) -> list[str]:
    sizes = np.array(division.sizes)
    partial = int(((sizes > 0) & (sizes < division.share)).any(axis=1).sum())
    empty = int((sizes == 0).any(axis=1).sum())
    each = "each replica's batches" if choices.policy == "FROM FUNCTION" else "batches"
    workers = f" of {choices.workers} workers" if choices.workers > 1 else ""
    copies = sum(size > 0 for size in placed)
    on = f"a whole copy on each of {copies} devices" if copies > 1 else "one copy on one device"
    shape = ", ".join(map(str, choices.shape))
    divided = (
        f"{counted(choices.examples, 'example')}, {each} of {choices.batch}, over "
        f"{counted(choices.replicas, 'replica')}{workers}: {counted(len(sizes), 'step')}, "
        f"{partial or 'none'} of them with a replica that receives less than its share, "
        f"{empty or 'none'} with one that receives nothing."
    )
    variable = (
        f"A variable {choices.dtype}[{shape}] takes {bytes_text(choices.bytes)}: {on}, "
        f"{bytes_text(sum(placed))} in all."
    )
    return [divided, variable]


def _cell(division: Division, step: int, replica: int) -> str:
    size, share = division.sizes[step][replica], division.share
    start = division.first[step][replica]
    text = share_of(size, share)
    begins = "" if start is None else f"{text}, from example {start} on"
    bar = image(data_uri(_bar(size, share, replica)), _BAR[0], begins or text)
    weight = "font-weight:600" if size < share else ""
    return f"{bar} <span style='{weight}'>{escape(text)}</span>"


def _bar(size: int, share: int, replica: int) -> npt.NDArray[np.uint8]:
    """Returns a tile for each example of a full share, filled for each received one."""
    wide, high = _BAR
    pixels = np.zeros((high, wide, 4), np.uint8)
    code = colour(replica)[1:]
    ink = (*bytes.fromhex(code), 255)
    tiles = share if share <= _MOST_TILES else 1
    edges = np.round(np.linspace(0, wide + 2, tiles + 1)).astype(int)
    for tile, (left, end) in enumerate(pairwise(edges)):
        pixels[:, left : end - 2] = ink if tiles == share and tile < size else _FREE
    if tiles < share:
        pixels[:, : round(wide * size / share)] = ink
    return pixels


def _movements(choices: Choices) -> str:
    rows = _movement_rows(choices)
    titles = ("Algorithm", "Messages, one after the other", "Each of", "One replica sends at most",
              "All send")  # fmt: skip
    unbroken = ([escape(cell.replace(" ", NO_BREAK)) for cell in row] for row in rows)
    cells = zip(*unbroken, strict=True)
    return table(dict(zip(titles, map(list, cells), strict=True)), "algorithms")


def _movement_rows(choices: Choices) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for one in move(choices):
        default = " (default)" if one.algorithm == _DEFAULT else ""
        kinds = ", ".join(f"{times} \u00d7 {kind}" for kind, times in one.messages.items())
        busiest, everyone = map(bytes_text, _sent(one, choices))
        name = f"{one.algorithm}{default}"
        rows.append((name, kinds or "none", bytes_text(choices.bytes), busiest, everyone))
    return rows


def _sent(one: Movement, choices: Choices) -> tuple[int, int]:
    """Returns the bytes that the busiest replica sends, and those that all replicas send."""
    each = np.zeros(choices.replicas, np.int64)
    for senders in one.sends:
        if senders:
            for replica, times in senders.items():
                each[replica] += times * wire_bytes("collective-permute", choices.bytes, 2)
        else:
            each += wire_bytes("all-reduce", choices.bytes, choices.replicas)
    return int(each.max()), int(each.sum())

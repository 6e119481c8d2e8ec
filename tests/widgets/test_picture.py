"""The picture that stays in a notebook."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from distlab.events import Sharding
from distlab.folds import Folds
from distlab.text.png import encode, enlarge
from distlab.widgets import Watch
from distlab.widgets._picture import picture
from distlab.widgets._summary import summarize
from tests.page.test_grids import run_on
from tests.synthetic import START_NS, beginning, digit, there, whole_run
from tests.wicked import wicked_run

# What JupyterLab's sanitizer lets pass in a notebook that is not trusted, as far as needed.
ALLOWED = {"p", "strong", "small", "span", "table", "tr", "th", "td", "img"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def drawn(folds: Folds, batch: int | None = None) -> str:
    columns = folds.batch(batch)
    return picture(folds, columns, summarize(folds, columns, Watch.panes))


def tags_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    tags = Tags()
    tags.feed(html)
    return tags.found


def pixels_of(source: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


def folds_of(count: int) -> Folds:
    folds = Folds()
    folds.add(whole_run(count))
    return folds


def test_no_text_of_a_run_is_markup_and_sanitizers_let_it_pass() -> None:
    folds = Folds()
    assert "<table" not in drawn(folds)
    folds.add(wicked_run(30))
    html = drawn(folds)
    assert "onerror" in html  # it is there, as text
    for tags in (tags_of(html), tags_of(drawn(folds_of(30)))):
        assert {name for name, _ in tags} <= ALLOWED
        assert {key for _, given in tags for key in given} <= {"style", "src", "alt", "title"}
        images = [given["src"] or "" for name, given in tags if name == "img"]
        assert all(source.startswith("data:") for source in images)


def test_png_files_hold_the_pixels_they_were_given() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode(pixels)))), pixels)
    assert enlarge(np.array([[1, 2]]), 2, 3).tolist() == [[1, 1, 2, 2]] * 3


def test_each_replica_has_its_examples_in_place() -> None:
    folds = folds_of(30)
    images = [tag for name, tag in tags_of(drawn(folds, 0)) if name == "img"]
    tiles = [image for image in images if image.get("alt")]
    assert str(tiles.pop(0)["alt"]).startswith("loss, from 2.")
    assert len(tiles) == 8
    batch = there(folds.batch(0))
    assert tiles[3]["alt"] == " ".join(batch["label"][24:32])
    shown = pixels_of(str(tiles[3]["src"]))
    first = shown[:24:3, :24:3, 0]
    assert np.array_equal(first, digit(int(there(batch["index"])[24])))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", drawn(folds, 22))
    counts = [cell for cell in cells if cell in ("8", "5 of 8", "empty")]
    assert counts == ["8", "8", "8", "5 of 8", "empty", "empty", "empty", "empty"]


def test_examples_without_a_preview_are_counted() -> None:
    folds = Folds()
    sharding = Sharding(
        time_ns=START_NS, strategy=0, dataset=0, batch=0, epoch=0, sizes=[2, 0], nominal=2,
        indices=None, bytes=8, wait_ns=0, transfer_ns=0, policy="rebatch",
    )  # fmt: skip
    folds.add([*beginning(2), sharding])
    html = drawn(folds)
    assert html.count("no preview") == 1
    assert "empty" in html


def test_a_mesh_is_drawn_below_the_tables() -> None:
    folds = Folds()
    folds.add(run_on({"data": 4, "model": 2}))
    summary = summarize(folds, folds.batch(), ("batches", "devices", "placement"))
    html = picture(folds, folds.batch(), summary)
    assert html.count("<td title=") == 4 * 8
    assert [heading in html for heading in (">Part<", ">Device<", ">Replica on<")] == [
        *(True, True, False)
    ]
    lines = summary.lines()
    assert lines[1].endswith("over 4 parts")
    assert lines[2:4] == ["  data 0  16", "  data 1  16"]
    assert "  CPU:7  100 %" in lines
    assert "4 copies of each along data" in html
    assert summarize(folds, folds.batch(), ("rates",)).grids == ""

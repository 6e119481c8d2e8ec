"""The places of charts' parts on the page."""

from __future__ import annotations

import math

import pytest

from distlab.events import Metric
from tests.synthetic import START_NS, ListSource, whole_run
from tests.ui.conftest import Pages, Served, ended

_LOSSES = ("loss", "validation_loss")
_OTHERS = ("accuracy", "learning_rate", "top_5_accuracy_of_validation", "norm", "perplexity")
_LEGENDS = """
() => [...Bokeh.index.query((view) => view.model.type === "Legend")].map((view) => {
  const frame = view.plot_view.frame.el.getBoundingClientRect()
  const box = view.el.getBoundingClientRect(), chart = view.plot_view.el.getBoundingClientRect()
  return {
    names: view.entries.map((entry) => entry.label),
    above: frame.top - box.bottom, inside: chart.right - box.right,
  }
})
"""
_TITLES = """
() => [...Bokeh.index.query((view) => view.model.type === "Label")].map((view) => {
  const left = view.plot_view.canvas.el.getBoundingClientRect().left + view.origin.sx
  let around = view.plot_view.el
  while (!around.matches(".card")) around = around.parentElement ?? around.getRootNode().host
  return left - around.getBoundingClientRect().left
})
"""
_HEADING = """
(heading) =>
  heading.getBoundingClientRect().left - heading.closest(".card").getBoundingClientRect().left
"""
_FRAMES = """
(name) => [...Bokeh.index.query((view) => view.model.type === "Figure")]
  .filter((view) => view.root.model.name === name)
  .map((view) => [view.frame.bbox.width, view.model.min_border_right])
"""
_MIDDLES = """
(parts) => parts.map((part) => part.getBoundingClientRect()).map((box) => box.y + box.height / 2)
"""
_ENDS = "(cells) => cells.map((cell) => cell.getBoundingClientRect().right)"


def test_legends_lie_above_curves_and_titles_below_headings(
    served: Served, new_page: Pages
) -> None:
    curves = [
        Metric(
            time_ns=START_NS + step * 10**6,
            step=step,
            values={name: math.cos(step / 9) for name in (*_LOSSES, *_OTHERS)},
        )
        for step in range(50)
    ]
    page = new_page(width=800).open(served(ListSource([*whole_run(20), *curves])).url)
    page.page.wait_for_function(
        f"() => ({_LEGENDS})().map(({{names}}) => names.length).toString() === '2' "
        f"&& ({_LEGENDS})().every(({{above, inside}}) => above >= 0 && inside >= 0)"
    )
    legends = page.page.evaluate(_LEGENDS)
    assert [legend["names"] for legend in legends] == [list(_LOSSES)]
    begin = page.page.locator(".card.facts h2").first.evaluate(_HEADING)
    titles = page.page.evaluate(_TITLES)
    assert len(titles) == 4
    assert titles == pytest.approx([begin] * 4, abs=1)
    page.tab("devices")
    scale = page.data("devices", "device_scale")
    rows = page.data("devices", "devices")
    assert [scale["image"][0][0], scale["image"][0][-1]] == [0, 1]
    assert scale["y"][0] < min(rows["y"])
    assert rows["text"] == [f"in flight {100 * share:.0f} %" for share in rows["mean"]]


@pytest.mark.parametrize("width", [390, 640])  # 640: a window of 1280 pixels at 200 %
def test_narrow_pages_give_their_room_to_charts(
    served: Served, new_page: Pages, width: int
) -> None:
    page = new_page(width=width).open(served(ended(whole_run(20))).url)
    places = page.page.locator("section[data-page=overview] .card.facts, .tile").all()
    lefts = {box["x"] for place in places if (box := place.bounding_box())}
    row = ".top > .brand, .top > .run, .top > .theme"  # whatever the run's name and strategy
    assert page.page.locator(row).evaluate_all(_MIDDLES) == pytest.approx([29] * 3, abs=6)
    if width == 390:
        assert places[0].bounding_box()["y"] <= 180  # type: ignore[index]
        assert len(lefts) == 1
    page.tab("placement")
    devices = len(page.data("placement", "placement_devices")["x"])
    assert devices == 8
    page.page.wait_for_function(
        f"() => ({_FRAMES})('placement')[0]?.[0] >= {50 * devices}", timeout=20_000
    )
    page.tab("reductions")
    page.page.wait_for_function(f"() => ({_FRAMES})('reductions')[0]?.[0] >= 0.25 * {width}")
    tab = page.page.locator(".tabs a[aria-current=page]").bounding_box()
    assert tab is not None
    assert 0 <= tab["x"] <= width - tab["width"]


def test_tables_of_reductions_and_times_end_within_800_pixels(
    served: Served, new_page: Pages
) -> None:
    page = new_page(width=800).open(served(ended(whole_run(20))).url)
    page.tab("reductions")
    cells = page.page.locator(".reductions td:last-child, .timebar select")
    assert max(cells.evaluate_all(_ENDS)) <= 800


def test_cards_are_no_blank_before_the_charts_arrive(served: Served, new_page: Pages) -> None:
    page = new_page()
    page.page.route("**/*.js*", lambda route: route.abort())
    page.page.goto(served(ended(whole_run(3))).url, wait_until="commit")
    look = "(one) => getComputedStyle(one, '::before').height"
    assert page.page.locator(".card [data-root-id]").first.evaluate(look) == "210px"
    page.errors.clear()

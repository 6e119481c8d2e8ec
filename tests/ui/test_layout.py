"""The places of charts' parts on the page."""

from __future__ import annotations

import math

import pytest

from distlab.events import Metric
from tests.synthetic import START_NS, ListSource, whole_run
from tests.ui.conftest import Pages, Served

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
        f"() => ({_LEGENDS})().map(({{names}}) => names.length).toString() === '2,5' "
        f"&& ({_LEGENDS})().every(({{above, inside}}) => above >= 0 && inside >= 0)"
    )
    legends = page.page.evaluate(_LEGENDS)
    assert [legend["names"] for legend in legends] == [list(_LOSSES), list(_OTHERS)]
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

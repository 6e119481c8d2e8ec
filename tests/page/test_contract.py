"""The names that pages and widgets ask for are those that Python makes, in both directions."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from bokeh.models import HoverTool

from distlab.charts import reduction_rows
from distlab.events import Advice
from distlab.folds import Folds
from distlab.page import comparison_tables, facts, loop_buttons
from distlab.page.board import TABLES, Board
from distlab.page.charts import CHARTS
from distlab.page.facts.cards import advice_facts
from distlab.page.grids import DRAWN
from distlab.page.loop_buttons import LoopRow
from distlab.page.template import PAGES
from distlab.page.view import View
from distlab.strategies.what_if import Choices
from distlab.widgets._explorer import CONTROLS
from distlab.widgets._explorer_widget import ExplorerWidget
from distlab.widgets._summary import summarize
from distlab.widgets._view_widget import ViewWidget
from distlab_dashboard import exports, shared_pages
from distlab_dashboard.event_list import EventList
from distlab_dashboard.run_page import RunPage
from distlab_dashboard.served_run import ServedRun
from tests.synthetic import ListSource, whole_run


def texts(package: str, pattern: str) -> dict[str, str]:
    """Files of a package by name, such as those that match `scripts/*.js`."""
    folder, _, end = pattern.rpartition("*")
    found = resources.files(package).joinpath(folder).iterdir()
    return {file.name: file.read_text("utf-8") for file in found if file.name.endswith(end)}


SECTIONS = texts("distlab.page", "sections/*.html")
HTML = "".join([*texts("distlab.page", "*.html").values(), *SECTIONS.values()])
SCRIPTS = texts("distlab.page", "scripts/*.js")
SCRIPT = "".join(SCRIPTS.values())
WIDGETS = texts("distlab.widgets", "*.js")


def keys(*structures: Any) -> set[str]:
    """Keys of `TypedDict`s, inherited ones included."""
    return {key for one in structures for key in one.__required_keys__ | one.__optional_keys__}


def names(pattern: str, text: str) -> set[str]:
    return set(re.findall(pattern, text))


def parameters(function: str, script: str) -> set[str]:
    """The properties that a function of a script takes out of its argument."""
    found = re.search(rf"function {function}\(\{{([^}}]*)\}}", script)
    assert found is not None, function
    return {name.strip() for name in found[1].split(",")}


def test_facts_are_those_that_the_page_asks_for() -> None:
    asked = names(r'data-(?:text|show|list)="(\w+)"', HTML)
    asked |= names(r"\b(?:facts|shown)\.(\w+)", SCRIPT)
    run = ServedRun(ListSource(whole_run(3)))
    run.feed.pull()
    view, folds = View(), run.feed.folds
    served = RunPage(run, Board(), ("",), ()).facts(view, folds, library=False)
    made = served.keys() | EventList(run.feed).facts(view).keys() | facts.INDEX.keys()
    assert asked == made
    away = re.search(r"const AWAY = \{(.*?)\n\}", SCRIPT, re.DOTALL)
    assert away is not None
    assert names(r"(\w+): \"", away[1]) <= made


def test_all_facts_are_made_for_every_run() -> None:
    made = []
    for events in ([], whole_run(60)):
        run = ServedRun(ListSource(events))
        run.feed.pull()
        page = RunPage(run, Board(), ("",), ())
        made.append(page.facts(View(), run.feed.folds, library=False))
        json.dumps(made[-1], allow_nan=False)
    assert made[0].keys() == made[1].keys()


def test_items_of_lists_are_those_that_the_page_asks_for() -> None:
    folds = Folds()
    folds.add(whole_run(3))
    (size, *_) = facts.batch_facts(folds.batch(), folds.columns("batches"))["batch_sizes"]
    assert parameters("sizeRow", SCRIPT) == size.keys()
    advice = Advice(
        time_ns=0, cause="a", subject="b", share=0.5, text="c", remedy="d", page="", steps=[],
        evidence={},
    )  # fmt: skip
    (found,) = advice_facts([advice], any_step=True, live=True)["advice"]
    assert parameters("adviceItem", SCRIPT) == found.keys()
    asked = parameters("loopRow", SCRIPT) | names(r"\bloop\.(\w+)", SCRIPTS["loops.js"])
    assert asked == keys(LoopRow)


def columns(table: str) -> set[str]:
    """The columns that a table's headings and tooltips name."""
    found = re.search(rf'<table class="rows {table}".*?</table>', HTML, re.DOTALL)
    assert found is not None, table
    return names(r'data-(?:column|title)="(\w+)"', found[0])


def test_columns_of_tables_are_those_that_the_page_asks_for() -> None:
    read = names(r'rows\.get_column\("(\w+)"\)', SCRIPTS["runs.js"])
    assert names(r'data-grids="(\w+)"', HTML) == {*DRAWN, *comparison_tables.DRAWN}
    for table, made in TABLES.items():
        if table not in {*DRAWN, *comparison_tables.DRAWN}:
            assert columns(table) | (read if table == "runs" else set()) == set(made), table


def test_columns_of_reductions_are_those_of_their_chart() -> None:
    drawn_from = {"inside", "count", "bytes", "total"}
    assert columns("reductions") == set(reduction_rows().data) - drawn_from


def test_only_the_values_of_tooltips_name_columns() -> None:
    # BokehJS writes a label as it stands.
    for entry in CHARTS.values():
        hovers = entry.make(height=300).root.select({"type": HoverTool})
        tools = [tool for tool in hovers if isinstance(tool.tooltips, list)]
        assert [label for tool in tools for label, _ in tool.tooltips if "@" in label] == []


def test_choices_are_those_that_the_page_makes() -> None:
    literal = re.search(r"const state = \{(.*?)\}", SCRIPT, re.DOTALL)
    assert literal is not None
    pairs = re.findall(r"(\w+): (null|\d+|\"[^\"]*\")", literal[1])
    assert {name: json.loads(text) for name, text in pairs} == dataclasses.asdict(View())
    known = {field.name for field in dataclasses.fields(View)}
    changes = names(r"\bsend\(\{(.*?)\}\)", SCRIPT)
    assert {name for change in changes for name in parts(change)} == known
    assert names(r"\bstate\.(\w+)", SCRIPT) <= known


def parts(change: str) -> Iterable[str]:
    """The properties of an object literal such as `at: end, speed`."""
    flat = re.sub(r"\(.*\)", "", change)
    return [part.partition(":")[0].strip() for part in flat.split(",") if part.strip()]


def test_places_for_charts_are_those_of_the_board() -> None:
    asked = {
        name: page.removesuffix(".html")
        for page, html in SECTIONS.items()
        for name in names(r"embed\(roots\.(\w+)\)", html)
    }
    assert asked == {name: entry.page for name, entry in CHARTS.items()}
    assert names(r"embed\(roots\.(\w+)\)", HTML) == set(Board().roots())


def test_pages_have_tabs_and_sections() -> None:
    assert names(r'<section data-page="(\w+)"', HTML) == set(PAGES)
    assert names(r'<a href="#\w+" data-page="(\w+)"', HTML) == set(PAGES)
    assert set(shared_pages.PAGES) < set(PAGES)
    assert {entry.page for entry in CHARTS.values()} < set(PAGES)
    advised = "".join(texts("distlab.advice", "*.py").values())
    assert set() < names(r'page="(\w+)"', advised) < set(PAGES)


def test_buttons_and_files_are_known_to_the_server() -> None:
    verbs = set(loop_buttons._VERBS)
    assert names(r'\["(\w+)", "[A-Z][^"]*"\]', SCRIPTS["loops.js"]) == verbs
    assert names(r'button\("(\w+)"', WIDGETS["view.js"]) == verbs
    assert names(r'data-export="([^"]*)"', HTML) == set(exports.FILES)


def traits(widget: Any) -> set[str]:
    """The traits of a widget that pages receive."""
    inherited = set(ViewWidget.__mro__[1].class_trait_names(sync=True))
    return set(widget.class_trait_names(sync=True)) - inherited


def test_traits_of_a_view_are_those_that_its_page_asks_for() -> None:
    script = WIDGETS["host.js"] + WIDGETS["view.js"]
    asked = names(r'model\.get\("(\w+)"\)', script) | names(r'"change:(\w+)"', script)
    charts = {name for name, entry in CHARTS.items() if entry.notebook}
    assert traits(ViewWidget) == asked | charts
    widget, folds = ViewWidget("host", (), batch=None, buttons=False), Folds()
    widget.show(summarize(folds, None, ("batches",)), folds)
    assert names(r"\bsummary\.(\w+)", WIDGETS["view.js"]) == set(widget.summary)
    widget.close()
    loop = re.search(r"const \{(.*?)\} of loops", WIDGETS["view.js"])
    assert loop is not None
    assert {name.strip() for name in loop[1].split(",")} == keys(LoopRow)


def test_traits_of_an_explorer_are_those_that_its_page_asks_for() -> None:
    script = WIDGETS["host.js"] + WIDGETS["explorer.js"]
    asked = names(r'model\.get\("(\w+)"\)', script) | names(r'"change:(\w+)"', script)
    assert traits(ExplorerWidget) == asked
    used = parameters("input", script) | names(r"\bcontrol\.(\w+)", script)
    assert used == {key for control in CONTROLS for key in control}
    fields = {field.name for field in dataclasses.fields(Choices)}
    assert {control["name"] for control in CONTROLS} <= fields


def test_messages_of_widgets_are_understood_on_the_other_side() -> None:
    sources = texts("distlab.widgets", "*.py")
    for widget, script in (("_view_widget.py", "view.js"), ("_explorer_widget.py", "explorer.js")):
        sent = names(r'model\.send\(\{ kind: "(\w+)"', WIDGETS[script])
        assert sent == names(r'(?:case|\("kind"\) ==) "(\w+)"', sources[widget])
        answers = names(r'\.send\(\{"kind": "(\w+)"', sources[widget])
        assert answers == names(r'content\.kind [!=]== "(\w+)"', WIDGETS[script])

"""Docstrings in the form that Sphinx reads: Markdown's backticks become its roles."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import inspect

_CODE = re.compile(r"`([^`]+)`(\w?)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_RETURNS = re.compile(r"^((?:Returns|Yields):\n +)(?=\S)", re.MULTILINE)
_ANYTHING = re.compile(r"\(\*args: [~.\w]+, \*\*kwargs: [~.\w]+\)")
_BEFORE_NAPOLEON = 400


def _to_rst(*event: Any) -> None:
    _, what, _, _, _, lines = event
    text = _CODE.sub(_code, "\n".join(lines))
    lines[:] = _RETURNS.sub(r"\1: ", text).splitlines()  # an empty type, else napoleon finds one
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")  # else napoleon reads what stands before a colon as the type


def _code(code: re.Match[str]) -> str:
    text, after = code.groups()
    mark = "`" if _NAME.fullmatch(text) else "``"
    return f"{mark}{text}{mark}" + (rf"\ {after}" if after else "")


def _signature(*event: Any) -> tuple[str, str] | None:
    _, what, _, thing, _, arguments, returned = event
    if arguments is None:
        return None
    if what == "class" and _ANYTHING.fullmatch(arguments):
        # `__new__` hides the constructor.
        constructor = inspect.signature(thing.__init__, bound_method=True)
        arguments = inspect.stringify_signature(constructor, unqualified_typehints=True)
        arguments = arguments.removesuffix(" -> None")
    # The verbs' type variable stands for the class that has them.
    named = [re.sub(r"\bDatasetT\b", "Dataset", text or "") for text in (arguments, returned)]
    return named[0], named[1]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the handlers."""
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _to_rst, priority=_BEFORE_NAPOLEON)
    return {"parallel_read_safe": True}

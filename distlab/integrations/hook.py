"""Prepares a library once it has been imported, and imports nothing before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final


def when_imported(
    name: str,
    has: str,
    prepare: Callable[[], None],
    explain: Callable[[ImportError], None] = lambda _: None,
) -> None:
    """Prepares a module: now if it has been imported, else when it is."""
    if hasattr(sys.modules.get(name), has):
        prepare()
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, prepare, explain))


@final
class _Finder(MetaPathFinder):
    """Finds one module where others do, and has its loader prepare it afterwards."""

    def __init__(
        self, name: str, prepare: Callable[[], None], explain: Callable[[ImportError], None]
    ) -> None:
        self.name = name
        self._prepare = prepare
        self._explain = explain
        self._finding = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of this module alone."""
        del path, target
        if fullname != self.name or self._finding:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        """Has a loader prepare the module that it has executed."""
        execute = loader.exec_module

        def execute_and_prepare(module: ModuleType) -> None:
            try:
                execute(module)
            except ImportError as error:
                self._explain(error)
                raise
            self._prepare()

        loader.exec_module = execute_and_prepare

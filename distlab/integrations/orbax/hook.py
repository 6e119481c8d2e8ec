"""Prepares Orbax once it has been imported, and imports nothing before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, final

_ORBAX: Final = "orbax.checkpoint"


def watch_for_orbax() -> None:
    """Prepares Orbax for distlab's values: now if it has been imported, else when it is."""
    orbax = sys.modules.get(_ORBAX)
    if hasattr(orbax, "StandardCheckpointHandler"):
        _prepare()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _prepare() -> None:
    from distlab.integrations.orbax.direct import prepare

    prepare()


@final
class _Finder(MetaPathFinder):
    """Finds Orbax where others do, and has its loader prepare it afterwards."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of Orbax alone, once."""
        del path, target
        if fullname != _ORBAX:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(_ORBAX)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_prepare(module: ModuleType) -> None:
            execute(module)
            _prepare()

        loader.exec_module = execute_and_prepare
        return spec

"""Adds distlab's part to Keras once Keras has been imported, and imports nothing before."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, final

_KERAS: Final = "keras"
_BACKENDS: Final = frozenset({"tensorflow", "torch", "jax", "openvino"})


def watch_for_keras() -> None:
    """Prepares Keras for strategies: now if it has been imported, else when it is."""
    keras = sys.modules.get(_KERAS)
    if keras is not None and hasattr(keras, "Model"):
        _prepare()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _prepare() -> None:
    from distlab.integrations.keras.patches import prepare

    prepare()


@final
class _Finder(importlib.abc.MetaPathFinder):
    """Finds Keras where others do, and has its loader prepare it afterwards."""

    def __init__(self) -> None:
        self._finding = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of Keras alone."""
        del path, target
        if fullname != _KERAS or self._finding:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(_KERAS)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


@final
class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._loader.exec_module(module)
        except ModuleNotFoundError as error:
            if error.name in _BACKENDS:
                error.add_note(
                    f"Keras asked for its backend {error.name!r}. distlab distributes Keras on "
                    'JAX: set KERAS_BACKEND=jax, or os.environ["KERAS_BACKEND"] = "jax", before '
                    "keras is imported."
                )
            raise
        _prepare()

    def __getattr__(self, name: str) -> Any:
        """Returns what the real loader has, such as `get_data` for package resources."""
        return getattr(self._loader, name)

"""Patches of Keras' functions, made once Keras has been imported; nothing here imports it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, final

from distlab.context import scopes
from distlab.errors import UnsupportedError
from distlab.integrations.keras.patching import Function, patch

_JAX: Final = "jax"
_BACKENDS: Final = frozenset({"tensorflow", "torch", "jax", "openvino"})


def watch_for_keras() -> None:
    """Prepares Keras for strategies: now if it has been imported, else when it is."""
    if hasattr(sys.modules.get("keras"), "Model"):
        _prepare()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


@final
class _Finder(MetaPathFinder):
    """Finds Keras where others do, and has its loader prepare it afterwards."""

    def __init__(self) -> None:
        self._finding = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != "keras" or self._finding:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            _follow(spec.loader)
        return spec


def _follow(loader: Any) -> None:
    """Has a loader prepare Keras once it has executed it."""
    execute = loader.exec_module

    def execute_and_prepare(module: ModuleType) -> None:
        try:
            execute(module)
        except ImportError as error:
            _explain(error)
            raise
        _prepare()

    loader.exec_module = execute_and_prepare


def _prepare() -> None:
    """Adds distlab's part to Keras on JAX; on other backends, an error in a strategy's scope."""
    import keras

    if keras.backend.backend() == _JAX:
        from distlab.integrations.keras.inputs import patch_epochs
        from distlab.integrations.keras.layers import patch_layers
        from distlab.integrations.keras.losses import patch_losses
        from distlab.integrations.keras.optimizers import patch_optimizers
        from distlab.integrations.keras.trainer import patch_trainer
        from distlab.integrations.keras.variables import patch_variables

        patch_losses()
        patch_optimizers()
        patch_layers()
        patch_variables()
        patch_trainer()
        patch_epochs()
    else:
        _refuse(keras.backend.backend())


def _refuse(backend: str) -> None:
    """Raises an error where a model of another backend is made in a strategy's scope."""
    from keras.src.trainers.trainer import Trainer

    @patch(Trainer, "__init__")
    def init(old: Function, self: Any, *args: Any, **options: Any) -> None:
        if scopes.has_strategy():
            raise UnsupportedError(
                f"Keras runs on {backend}, and distlab's strategies run JAX programs, so "
                f"{type(self).__name__} can't be made in strategy.scope(). Set "
                'KERAS_BACKEND=jax, or os.environ["KERAS_BACKEND"] = "jax", before keras is '
                "imported."
            )
        old(self, *args, **options)


def _explain(error: ImportError) -> None:
    """Adds the backend to set, where the one that Keras asked for is not installed."""
    if error.name in _BACKENDS:
        error.add_note(
            f"Keras asked for its backend {error.name!r}. distlab distributes Keras on JAX: set "
            'KERAS_BACKEND=jax, or os.environ["KERAS_BACKEND"] = "jax", before keras is imported.'
        )

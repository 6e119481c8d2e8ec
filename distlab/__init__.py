"""distlab: `tf.distribute.Strategy` re-made on JAX, that shows what it does.

    import distlab as dl
    dl.use_cpu_devices(8)
    strategy = dl.MirroredStrategy()
    with strategy.scope():
        w = dl.Variable(...)
    for x, y in strategy.experimental_distribute_dataset(dataset):
        losses = strategy.run(step, args=(x, y))
        loss = strategy.reduce("MEAN", losses, axis=None)

Every placement, sharding and reduction is an event: `dl.record` keeps them,
`dl.watch()` shows them in a notebook, and `distlab dashboard` serves them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distlab.context import scopes
from distlab.devices import thread_pool
from distlab.events import sink
from distlab.integrations.keras import patches as keras_patches

if TYPE_CHECKING:
    from distlab._api import *  # noqa: F403 - the public names stand there, and only there

__version__ = "0.1.0"


def _default_replica() -> scopes.Replica:
    from distlab.strategies.default import DefaultStrategy

    return DefaultStrategy().default_replica_context()


def _default_recorder() -> sink.Recorder:
    from distlab.recording import make_default

    return make_default()


# XLA reads the size of its thread pool when JAX is first used, which may be in the next line.
thread_pool.enlarge_at_import()
scopes.set_default(_default_replica)
sink.set_default(_default_recorder)
keras_patches.watch_for_keras()


def __getattr__(name: str) -> Any:
    """Loads JAX and distlab's parts when the first public name is asked for.

    The command's help must not wait for that, and the widgets need packages of
    their own.
    """
    if name == "widgets":
        return import_module("distlab.widgets")
    if name == "watch":
        return import_module("distlab.widgets").watch
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'distlab' has no attribute {name!r}")
    api = import_module("distlab._api")
    if name == "__all__":
        return api.__all__
    if name not in api.__all__:
        raise AttributeError(f"module 'distlab' has no attribute {name!r}")
    value = globals()[name] = getattr(api, name)
    return value


def load_ipython_extension(shell: Any) -> None:
    """Adds the cell magic `%%watch` to IPython, for `%load_ext distlab`."""
    from distlab.widgets._magic import register

    register(shell)


def __dir__() -> list[str]:
    """Lists the public names."""
    public: list[str] = __getattr__("__all__")
    return public

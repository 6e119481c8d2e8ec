"""The public functions that return and set the current strategy."""

from __future__ import annotations

from typing import cast

from distlab.context import scopes
from distlab.errors import ContextError
from distlab.strategies.abstract import Strategy
from distlab.text.shown import shown


def get_strategy() -> Strategy:
    """Returns the current strategy; the default one outside of any scope.

    Example:
      >>> import distlab as dl
      >>> dl.get_strategy()
      DefaultStrategy()
      >>> with dl.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
      ...     dl.get_strategy()
      MirroredStrategy(CPU:0, CPU:1)
    """
    return cast(Strategy, scopes.current_strategy())


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Makes a strategy current without a `with` block, in the calling thread.

    Other threads keep theirs, as with `tf.distribute.experimental_set_strategy`.
    `distlab.background` hands the caller's strategy on.

    Args:
      strategy: The strategy; None restores the default one.

    Raises:
      ContextError: The call is inside a strategy's scope or replica function, or
        `strategy` is not a strategy.

    Example:
      >>> import distlab as dl
      >>> dl.experimental_set_strategy(dl.OneDeviceStrategy("CPU:3"))
      >>> dl.get_strategy()
      OneDeviceStrategy(CPU:3)
      >>> dl.experimental_set_strategy(None)
      >>> dl.get_strategy()
      DefaultStrategy()
    """
    if strategy is not None and not isinstance(strategy, Strategy):
        raise ContextError(
            "experimental_set_strategy needs a strategy that was made, or None, got "
            f"{shown(strategy)}. Pass for example distlab.MirroredStrategy()."
        )
    scopes.set_base(strategy)

"""The two ways to run a replica function: compiled, or as ordinary Python."""

from __future__ import annotations

from typing import Any, Final

import jax
import msgspec

from distlab.errors import OptionError
from distlab.text.counts import is_count
from distlab.text.shown import shown
from distlab.user_code import calling_line


class RunOptions(msgspec.Struct, frozen=True):
    """Options of one call of `Strategy.run` (`tf.distribute.RunOptions`).

    Attributes:
      experimental_enable_dynamic_batch_size: Accepted for compatibility with TensorFlow;
        partial batches always work.
      experimental_bucketizing_dynamic_shape: Accepted for compatibility with TensorFlow.
      experimental_xla_options: Accepted for compatibility with TensorFlow.
      run_eagerly: True runs the function as ordinary Python, False compiled; None
        leaves the choice to `run_functions_eagerly`.
      donate_argnums: Positions in `args` whose arrays are donated, as in `jax.jit`:
        results may reuse their memory, and the arrays can't be used afterwards.
        Arrays that are not on the replicas' devices are copied there, and only the
        copies are donated. Functions that run eagerly donate nothing.
      static_argnums: Positions of static arguments, as in `jax.jit`: the function receives
        them as they are, numbers too, and is compiled once for each value. They need a hash.
        Python bools, strings and None are static by themselves.
      static_argnames: Names of static arguments, as in `jax.jit`.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> def step(x):
      ...     print("replica", dl.get_replica_context().replica_id_in_sync_group, "has", x)
      >>> strategy.run(step, args=(3,), options=dl.RunOptions(run_eagerly=True))
      replica 0 has 3
      replica 1 has 3
      >>> def repeated(x, times):
      ...     return [x] * times
      >>> options = dl.RunOptions(static_argnames="times")
      >>> len(strategy.run(repeated, args=(1.0, 3), options=options))
      3
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None
    run_eagerly: bool | None = None
    donate_argnums: int | tuple[int, ...] = ()
    static_argnums: int | tuple[int, ...] = ()
    static_argnames: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the types, so that the line that made the options is the one that fails."""
        if self.run_eagerly is not None:
            _checked(self.run_eagerly)
        donated: Any = self.donate_argnums
        if not is_count(donated) and not (
            isinstance(donated, tuple) and all(is_count(position) for position in donated)
        ):
            raise OptionError(
                "donate_argnums must be positions of arguments in args, a number or a tuple of "
                f"numbers, got {shown(donated)}. For the first argument write donate_argnums=0."
            )


jax_config: Final[Any] = jax.config
"""Its `jax_disable_jit`, a way to debug, means the same."""

eagerly = False
"""The mode of calls without `run_eagerly`."""

_chosen_at = ""


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Sets whether `Strategy.run` runs functions eagerly (`tf.config.run_functions_eagerly`).

    An eager function is ordinary Python that runs once for each replica, on
    numbers. That is slow, and suits debugging, teaching, and functions that need a
    Python number. Both modes compute the same numbers.

    Args:
      run_eagerly: True for ordinary Python, False (the default) for compiled programs.

    Raises:
      OptionError: `run_eagerly` is neither True nor False.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dl.run_functions_eagerly(True)
      >>> strategy.run(lambda x: print("x is", x), args=(3,))
      x is 3
      x is 3
      >>> dl.run_functions_eagerly(False)
    """
    global eagerly, _chosen_at
    eagerly, _chosen_at = _checked(run_eagerly), calling_line()


def _checked(run_eagerly: Any) -> bool:
    if not isinstance(run_eagerly, bool):
        raise OptionError(
            "run_eagerly must be True (ordinary Python) or False (compiled), got "
            f"{shown(run_eagerly)}. Use True to debug, else False."
        )
    return run_eagerly


def functions_run_eagerly() -> bool:
    """Returns whether `Strategy.run` runs functions eagerly, as ordinary Python.

    Example:
      >>> import distlab as dl
      >>> dl.functions_run_eagerly()
      False
    """
    return eagerly or bool(jax_config.jax_disable_jit)


def chosen_at() -> str:
    """Returns the line of the program that turned eager mode on; empty while it is off."""
    return _chosen_at if eagerly else ""


def eager_asked_for(options: RunOptions) -> bool:
    """Returns whether a call with these options runs eagerly."""
    if not isinstance(options, RunOptions):
        raise OptionError(
            f"options must be a distlab.RunOptions or None, got a {type(options).__name__}. Write "
            "RunOptions(run_eagerly=True), or leave options out."
        )
    chosen = eagerly if options.run_eagerly is None else _checked(options.run_eagerly)
    return chosen or bool(jax_config.jax_disable_jit)

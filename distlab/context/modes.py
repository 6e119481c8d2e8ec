"""The two ways to run a replica function: compiled, or as ordinary Python."""

from __future__ import annotations

from typing import Any

import msgspec

from distlab.errors import OptionError


class RunOptions(msgspec.Struct, frozen=True):
    """Options of one call of `Strategy.run` (`tf.distribute.RunOptions`).

    Attributes:
      experimental_enable_dynamic_batch_size: taken for TensorFlow's sake;
        partial batches always work.
      experimental_bucketizing_dynamic_shape: taken for TensorFlow's sake.
      experimental_xla_options: taken for TensorFlow's sake.
      run_eagerly: true runs the function as ordinary Python, false compiled;
        None as `run_functions_eagerly` says.
      donate_argnums: positions in `args` whose arrays' memory results may take
        over, as in `jax.jit`; the arrays can't be used afterwards. What is not
        where the replicas are is copied there first and stays. Functions that
        run eagerly take nothing over.
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None
    run_eagerly: bool | None = None
    donate_argnums: int | tuple[int, ...] = ()


_eagerly = False


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Chooses how `Strategy.run` executes functions (tf.config's name for it).

    Eagerly, a function is ordinary Python, run once for each replica on
    numbers: slow, and right for debugging, teaching, and functions that need a
    Python number. Both ways give the same numbers.

    Args:
      run_eagerly: true for ordinary Python, false (the default) for compiled.

    Raises:
      OptionError: it is neither.
    """
    global _eagerly
    _eagerly = _checked(run_eagerly)


def _checked(run_eagerly: Any) -> bool:
    if not isinstance(run_eagerly, bool):
        raise OptionError(
            f"run_eagerly must be True (ordinary Python) or False (compiled), got {run_eagerly!r}."
        )
    return run_eagerly


def functions_run_eagerly() -> bool:
    """Says whether `Strategy.run` executes functions as ordinary Python."""
    return _eagerly


def eager_asked_for(options: RunOptions | None) -> bool:
    """Says whether a call with these options runs eagerly.

    Raises:
      OptionError: they are no options, or `run_eagerly` is not true or false.
    """
    if options is None:
        return _eagerly
    if not isinstance(options, RunOptions):
        raise OptionError(
            f"options must be a distlab.RunOptions or None, got a {type(options).__name__}. Write "
            "RunOptions(run_eagerly=True), or leave it out."
        )
    return _eagerly if options.run_eagerly is None else _checked(options.run_eagerly)

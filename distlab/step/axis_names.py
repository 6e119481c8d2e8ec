"""What JAX's collectives over the axis of replicas say where its name is not bound."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from distlab.devices.mesh import AXIS
from distlab.errors import ContextError


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Runs ordinary Python, in which the axis of replicas has no name for JAX.

    Raises:
      ContextError: The code calls a collective of JAX over that axis.
    """
    try:
        yield
    except NameError as error:
        if not str(error).startswith(f"unbound axis name: {AXIS}"):
            raise
        raise ContextError(
            f'The axis name "{AXIS}" is bound in functions that run compiles, and this one runs as '
            "ordinary Python. In place of jax.lax.psum, pmean and layers with an axis name, use "
            "distlab.get_replica_context().all_reduce and distlab.flax.BatchNorm, which work in "
            "both; or leave out run_functions_eagerly and the default strategy."
        ) from error

"""The versions of what pickles functions and runs them, which processes of a cluster share."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from distlab.errors import ClusterError


def versions() -> dict[str, str]:
    """Returns the versions in this process, as far as they must be equal.

    Functions travel as Python's bytecode, which changes with Python's minor version, in
    cloudpickle's form; they refer to names of JAX, some of which its next minor version lacks.
    """
    return {
        "distlab": metadata.version("distlab"),
        "Python": _minor(platform.python_version()),
        "JAX": _minor(metadata.version("jax")),
        "cloudpickle": _minor(metadata.version("cloudpickle")),
    }


def require_same(theirs: Mapping[str, str], who: str) -> None:
    """Checks that a task has the versions of this process."""
    own = versions()
    other = [
        f"{name} {theirs.get(name, 'unknown')} there and {version} here"
        for name, version in own.items()
        if theirs.get(name) != version
    ]
    if other:
        raise ClusterError(
            f"{who} has other versions than the coordinator: {'; '.join(other)}. Functions "
            "travel between them. Install the same ones."
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])

"""Prepares Orbax once it has been imported."""

from __future__ import annotations

from distlab.integrations.hook import when_imported


def watch_for_orbax() -> None:
    """Prepares Orbax for distlab's values: now if it has been imported, else when it is."""
    when_imported("orbax.checkpoint", "StandardCheckpointHandler", _prepare)


def _prepare() -> None:
    from distlab.integrations.orbax.direct import prepare

    prepare()

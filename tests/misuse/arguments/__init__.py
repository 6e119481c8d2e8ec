"""The rows of the table of arguments, by area."""

from __future__ import annotations

from tests.misuse.arguments import (
    clusters,
    dataset_functions,
    dataset_verbs,
    datasets,
    decoding,
    distributing,
    extended,
    files,
    loops,
    losses,
    recordings,
    replicas,
    running,
    strategies,
    variables,
)

AREAS = (
    clusters,
    dataset_functions,
    dataset_verbs,
    datasets,
    decoding,
    distributing,
    extended,
    files,
    loops,
    losses,
    recordings,
    replicas,
    running,
    strategies,
    variables,
)

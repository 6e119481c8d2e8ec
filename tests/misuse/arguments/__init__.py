"""The rows of the table of arguments, by area."""

from __future__ import annotations

from tests.misuse.arguments import (
    clusters,
    dataset_functions,
    dataset_verbs,
    datasets,
    decoding,
    distributing,
    drawing,
    extended,
    files,
    loops,
    losses,
    nests,
    recordings,
    replicas,
    running,
    saving,
    strategies,
    training,
    variables,
)

AREAS = (
    clusters,
    dataset_functions,
    dataset_verbs,
    datasets,
    decoding,
    distributing,
    drawing,
    extended,
    files,
    loops,
    losses,
    nests,
    recordings,
    replicas,
    running,
    saving,
    strategies,
    training,
    variables,
)

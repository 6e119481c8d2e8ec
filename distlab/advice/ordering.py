"""Training examples that arrive sorted by their label.

Batches of one class each pull a model to and fro. It is a cause where batches train, and
their labels are known (the previews' labels), when in 8 batches or more nine tenths of a batch are
of one label on average, shuffled batches of the same labels would be far more mixed, and each
label's batches follow one another.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

import numpy as np

from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice, Collective, Sharding
from distlab.folds import EvidenceColumns

CAUSE: Final = "sorted_examples"

_FEWEST_BATCHES: Final = 8
_FEWEST_EXAMPLES: Final = 4
_SORTED: Final = 0.9
_MIXED: Final = 0.75
_CHANGES_OF_A_LABEL: Final = 2
_LARGE_SUM_BYTES: Final = 64


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets that are sorted, in columns of `folds.Evidence`: one advice a line."""
    if not columns["labels"]:
        return []
    training = _programs_that_train(columns)
    found: dict[str, Advice] = {}
    for first in columns["first_batches"].values():
        if np.mean([one.program in training for one in first]) > 0.5:
            batches = _labels_of_batches(columns, [one.batch for one in first])
            advice = _sorted(first[0].batch, batches) if batches else None
            if advice is not None:  # a line may make a dataset for each epoch
                found.setdefault(advice.subject, advice)
    return list(found.values())


def _sorted(first: Sharding, batches: list[list[str]]) -> Advice | None:
    name = f"dataset at {first.source}" if first.source else f"dataset {first.dataset}"
    every = [label for batch in batches for label in batch]
    labels = Counter(every)
    if len(batches) < _FEWEST_BATCHES or not 2 <= len(labels) <= len(every) / _FEWEST_EXAMPLES:
        return None
    share = _one_label(batches)
    mixed = np.random.default_rng(0).permutation(every)
    ends = np.cumsum([len(batch) for batch in batches])[:-1]
    shuffled = _one_label([part.tolist() for part in np.split(mixed, ends)])
    main = [Counter(batch).most_common(1)[0][0] for batch in batches]
    changes = sum(one != following for one, following in pairwise(main))
    if share < _SORTED or shuffled > _MIXED or changes > _CHANGES_OF_A_LABEL * len(labels):
        return None
    return new_advice(
        CAUSE,
        name,
        f"The {name} is sorted by label: on average {percent_text(share)} of a batch have one "
        f"label; of shuffled batches it would be {percent_text(shuffled)}.",
        "Shuffle the examples before they are batched: "
        "dataset.shuffle(len(dataset)).batch(global_batch_size).",
        evidence={
            "one_label_share": share,
            "shuffled_share": shuffled,
            "labels": len(labels),
            "batches": len(batches),
        },
        page="batches",
        share=1.0,
        source=first.source,
    )


def _one_label(batches: list[list[str]]) -> float:
    """Returns the mean share of a batch's most frequent label."""
    shares = [Counter(batch).most_common(1)[0][1] / len(batch) for batch in batches]
    return float(np.mean(shares))


def _labels_of_batches(columns: EvidenceColumns, batches: list[Sharding]) -> list[list[str]]:
    """Returns the known labels of batches until their examples come again."""
    found: list[list[str]] = []
    seen: set[int] = set()
    for batch in batches:
        known = columns["labels"].get(batch.dataset)
        if known is None:
            break
        positions = batch.positions
        if positions is None:
            labels = known.of_batches.get((batch.epoch, batch.batch), [])
        else:
            numbers = positions.tolist()
            if 2 * len(seen.intersection(numbers)) > len(numbers):
                break
            seen.update(numbers)
            labels = [known.of_examples.get(position, "") for position in numbers]
        if len(labels) >= _FEWEST_EXAMPLES and all(labels):
            found.append(labels)
    return found


def _programs_that_train(columns: EvidenceColumns) -> set[int]:
    """Returns the programs that train, as far as they show it."""
    return {
        program.program
        for program in columns["compiles"]
        if program.trains and (program.assigned or any(map(_may_be_gradients, program.collectives)))
    }


def _may_be_gradients(one: Collective) -> bool:
    """Returns whether a collective may combine gradients, and not counts or a loss."""
    floats = any(dtype.startswith(("f", "bf")) for dtype in one.dtype.split("+"))
    return one.kind == "all-reduce" and one.operand_bytes > _LARGE_SUM_BYTES and floats

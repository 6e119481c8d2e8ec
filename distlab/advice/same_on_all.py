"""Replicas that do what another one does already: the same examples, or the same random numbers.

The trace of a function shows that all it trains on reaches every replica alike, or that numbers
drawn from a key that all replicas share meet the examples of each, row by row. Of datasets some
batches are compared as they are divided.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._columns import batches_by_dataset, doubts_about
from distlab.advice._texts import at, new_advice
from distlab.events import Advice
from distlab.folds import EvidenceColumns

EXAMPLES: Final = "same_examples"
RANDOM: Final = "same_random_numbers"

_FEWEST_BATCHES: Final = 3


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds replicas that repeat another's work, in columns of `folds.Evidence`."""
    return [*_same_work(columns), *_same_batches(columns), *_same_random(columns)]


def _same_batches(columns: EvidenceColumns) -> list[Advice]:
    found = []
    batches = columns["batches"]
    for name, rows in batches_by_dataset(columns):
        repeated = batches["repeated"][rows]
        seen = int((repeated > 0).sum())
        if seen < _FEWEST_BATCHES or _train_apart(columns, int(batches["strategy"][rows[-1]])):
            continue
        replicas = len(batches["sizes"][rows[-1]])
        found.append(
            new_advice(
                EXAMPLES,
                name,
                f"{int(repeated.max()) + 1} of {replicas} replicas receive the same examples of "
                f"the {name}, in all {seen} batches that were compared.",
                "Divide one dataset of global batches, strategy.experimental_distribute_dataset, "
                "or give each pipeline its own part: dataset.shard(context.num_input_pipelines, "
                "context.input_pipeline_id).",
                evidence={"replicas": int(repeated.max()) + 1, "batches": seen},
                page="batches",
                share=float(repeated.max()) / max(replicas, 1),
                source=batches["source"][rows[-1]],
            )
        )
    return found


def _train_apart(columns: EvidenceColumns, strategy: int) -> bool:
    """Returns whether each replica trains a model of its own: nothing is combined."""
    used = set(columns["steps"]["program"].tolist())
    training = [
        one
        for one in columns["compiles"]
        if one.strategy == strategy and one.program in used and one.trains and one.mode != "eager"
    ]
    return bool(training) and not any(one.collectives or one.assigned for one in training)


def _same_work(columns: EvidenceColumns) -> list[Advice]:
    found = []
    for program, doubt, steps in doubts_about(columns, "same_work"):
        replicas = len(columns["strategies"].get(program.strategy, ("", []))[1])
        found.append(
            new_advice(
                EXAMPLES,
                doubt.subject,
                f"All {replicas} replicas of {program.function} receive the same "
                f"{doubt.because}{at(doubt.source)} and compute the same from it: an array that "
                f"run receives{at(program.called)} is whole on every replica.",
                "Divide the batches: strategy.experimental_distribute_dataset(dataset), or pass a "
                "PerReplica with each replica's own examples.",
                evidence={"replicas": replicas, "steps": len(steps)},
                page="batches",
                share=1 - 1 / max(replicas, 1),
                steps=steps,
                time_ns=program.time_ns,
                source=program.called or doubt.source,
            )
        )
    return found


def _same_random(columns: EvidenceColumns) -> list[Advice]:
    return [
        new_advice(
            RANDOM,
            f"function {doubt.subject}",
            f"{doubt.subject} draws the same random numbers on all replicas{at(doubt.source)} and "
            "applies them to each replica's own examples: example 0 of every replica gets the same "
            "mask or noise.",
            "Give each replica its own key: jax.random.fold_in(key, "
            "distlab.get_replica_context().replica_id_in_sync_group).",
            evidence={"places": doubt.numbers.get("places", 1), "steps": len(steps)},
            page="events",
            share=1.0,
            steps=steps,
            time_ns=program.time_ns,
            source=doubt.source,
        )
        for program, doubt, steps in doubts_about(columns, "same_random")
    ]

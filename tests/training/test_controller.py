"""Controller, StandardTrainer and StandardEvaluator: steps, actions, checkpoints, end of data."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentValueError,
    ContextError,
    DistlabError,
    InvalidArgumentError,
    OutOfRangeError,
    UnsupportedError,
)


def strategy_of(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


class Counting(dl.StandardTrainer):
    """Counts how often each of 10 examples is seen."""

    def __init__(self, replicas: int, epochs: int | None = None) -> None:
        self.strategy = strategy_of(replicas)
        dataset = dl.data.Dataset.range(10).shuffle(10, seed=1).batch(3).repeat(epochs)
        super().__init__(self.strategy.experimental_distribute_dataset(dataset))
        with self.strategy.scope():
            self.global_step = dl.Variable(0)
            self.seen = dl.Variable(
                jnp.zeros(10, jnp.int32),
                synchronization=dl.VariableSynchronization.ON_READ,
                aggregation=dl.VariableAggregation.SUM,
            )

    def train_step(self, iterator: Iterator[Any]) -> None:
        def step(i: Any) -> None:
            self.seen.assign_add(jnp.zeros(10, jnp.int32).at[i].add(1))
            self.global_step.assign_add(1)

        self.strategy.run(step, args=(next(iterator),))

    def train_loop_end(self) -> dict[str, Any]:
        return {"seen": self.seen.value().sum(), "what": "text"}


class Summing(dl.StandardEvaluator):
    def __init__(self) -> None:
        super().__init__(dl.data.Dataset.range(5).batch(2))

    def eval_begin(self) -> None:
        self.total = 0

    def eval_step(self, iterator: Iterator[Any]) -> None:
        self.total += int(next(iterator).sum())

    def eval_end(self) -> dict[str, Any]:
        return {"total": self.total}


class Reducing(dl.StandardEvaluator):
    """Sums batches through `eval_reduce`, and notes each call with its arguments."""

    def __init__(self, begin: Any = 0, examples: int = 5) -> None:
        super().__init__(dl.data.Dataset.range(examples).batch(2))
        self.begin = begin
        self.calls = list[tuple[Any, ...]]()

    def eval_begin(self) -> Any:
        return self.begin

    def eval_step(self, iterator: Iterator[Any]) -> int:
        return int(next(iterator).sum())

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        self.calls.append(("reduce", state, step_outputs))
        return step_outputs if state is None else state + step_outputs

    def eval_end(self, *outputs: Any) -> dict[str, Any]:
        self.calls.append(("end", *outputs))
        return {"total": sum(outputs)}


class Unreduced(Reducing):
    """Has a state that no `eval_reduce` keeps."""

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        self.calls.append(("reduce", state, step_outputs))
        return dl.StandardEvaluator.eval_reduce(self, state, step_outputs)


def managed(trainer: Counting, folder: Path, **options: Any) -> dl.train.CheckpointManager:
    checkpoint = dl.train.Checkpoint(step=trainer.global_step, seen=trainer.seen)
    return dl.train.CheckpointManager(checkpoint, folder, **options)


def test_it_trains_in_loops_and_evaluates_between(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, told = Counting(2), list[Any]()
    controller = dl.Controller(
        trainer=trainer,
        evaluator=Summing(),
        global_step=trainer.global_step,
        steps_per_loop=2,
        train_actions=[lambda outputs: told.append(int((outputs or {})["seen"]))],
        eval_actions=[told.append],
    )
    assert controller.train_and_evaluate(5, eval_steps=2, eval_interval=3) == {"total": 6}
    assert told == [6, 9, {"total": 6}, 13, {"total": 6}]
    assert controller.train_and_evaluate(5) is None
    lines = [line.rpartition(" | ")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "train | step 2 | seen 6",
        "train | step 3 | seen 9",
        "eval | step 3",
        "train | step 5 | seen 13",
        "eval | step 5",
    ]


def test_metrics_are_recorded(tmp_path: Path) -> None:
    trainer = Counting(2)
    with dl.record(tmp_path / "run"):
        controller = dl.Controller(
            trainer=trainer, evaluator=Summing(), global_step=trainer.global_step
        )
        controller.train_and_evaluate(2)
    with dl.Run.open(tmp_path / "run") as run:
        found = [(m.step, m.values) for m in run.events("metric")]  # type: ignore[union-attr]
    assert found == [(2, {"seen": 6.0}), (2, {"eval_total": 10.0})]


@pytest.mark.parametrize("first", range(1, 9))
def test_a_new_program_goes_on_at_the_next_batch_on_other_replicas(
    first: int, tmp_path: Path
) -> None:
    trainer = Counting(4, epochs=3)
    controller = dl.Controller(
        trainer=trainer,
        global_step=trainer.global_step,
        steps_per_loop=2,
        checkpoint_manager=managed(trainer, tmp_path),
    )
    assert controller.restored is None
    controller.train(first)
    later = Counting(3, epochs=3)
    controller = dl.Controller(
        trainer=later, global_step=later.global_step, checkpoint_manager=managed(later, tmp_path)
    )
    assert str(controller.restored).endswith(f"ckpt-{first}")
    controller.train(12)
    assert later.seen.numpy().tolist() == [3] * 10
    with pytest.raises(OutOfRangeError, match="ended after 0 of 1 steps"):
        controller.train(13)


def test_checkpoints_come_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    trainer = Counting(2)
    manager = managed(trainer, tmp_path, step_counter=trainer.global_step, checkpoint_interval=4)
    controller = dl.Controller(
        trainer=trainer,
        global_step=trainer.global_step,
        steps_per_loop=1,
        checkpoint_manager=manager,
    )
    controller.train(7)
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-1", "ckpt-5", "ckpt-7"]
    controller.train(8, checkpoint_at_completion=False)
    assert str(manager.latest_checkpoint).endswith("ckpt-7")


def test_a_trainer_must_count_its_steps() -> None:
    trainer = Counting(2)
    controller = dl.Controller(trainer=trainer, global_step=dl.Variable(0))
    with pytest.raises(DistlabError, match="took 3 steps and global_step went from 0 to 0"):
        controller.train(3)


def test_wrong_arguments_are_refused() -> None:
    step = dl.Variable(0)
    with pytest.raises(ArgumentValueError, match="a trainer or an evaluator"):
        dl.Controller(global_step=step)
    with pytest.raises(ArgumentValueError, match="steps_per_loop must be"):
        dl.Controller(global_step=step, evaluator=Summing(), steps_per_loop=0)
    controller = dl.Controller(global_step=step, evaluator=Summing())
    with pytest.raises(ArgumentValueError, match="needs a trainer"):
        controller.train(1)
    with pytest.raises(ArgumentValueError, match="num_steps must be"):
        Summing().evaluate(-2)


@pytest.mark.parametrize("begin", [0, None])
def test_eval_reduce_joins_the_results_of_steps_to_the_state_that_eval_end_gets(begin: Any) -> None:
    evaluator = Reducing(begin)
    assert evaluator.evaluate() == {"total": 10}
    assert evaluator.calls == [
        ("reduce", begin, 1),
        ("reduce", 1, 5),
        ("reduce", 6, 4),
        ("end", 10),
    ]
    assert evaluator.evaluate(1) == {"total": 1}
    assert dl.Controller(global_step=dl.Variable(0), evaluator=evaluator).evaluate(2) == {
        "total": 6
    }


@pytest.mark.parametrize(
    ("evaluator", "calls"),
    [
        (Reducing(7, examples=0), [("end", 7)]),
        (Reducing(None, examples=0), [("end",)]),
        (Unreduced(7, examples=3), [("reduce", 7, 1), ("reduce", None, 2), ("end",)]),
    ],
    ids=["state and no step", "no state", "default eval_reduce"],
)
def test_eval_end_has_an_argument_where_the_last_state_is_not_none(
    evaluator: Reducing, calls: list[Any]
) -> None:
    evaluator.evaluate()
    assert evaluator.calls == calls


def test_an_evaluation_of_distributed_data_ends_where_get_next_finds_no_more() -> None:
    strategy = strategy_of(2)

    class Distributed(Reducing):
        def eval_step(self, iterator: Any) -> int:
            return int(strategy.reduce("SUM", iterator.get_next(), axis=0))

    evaluator = Distributed()
    evaluator.eval_dataset = strategy.experimental_distribute_dataset(
        dl.data.Dataset.range(5).batch(2)
    )
    assert evaluator.evaluate() == {"total": 10}
    assert [call[0] for call in evaluator.calls] == ["reduce", "reduce", "reduce", "end"]


def test_init_fn_makes_variables_in_the_scope_of_the_controllers_strategy(tmp_path: Path) -> None:
    strategy = strategy_of(2)
    trainer = Counting(2)
    made = list[dl.Variable]()
    manager = managed(trainer, tmp_path / "own", init_fn=lambda: made.append(dl.Variable(1.0)))

    def controller(**options: Any) -> dl.Controller:
        return dl.Controller(
            global_step=trainer.global_step, trainer=trainer, checkpoint_manager=manager, **options
        )

    assert controller(strategy=strategy).strategy is strategy
    with strategy.scope():
        assert controller().strategy is strategy
    assert controller().strategy is dl.get_strategy()
    assert [variable.strategy for variable in made] == [strategy, strategy, dl.get_strategy()]
    assert [len(variable.values) for variable in made] == [2, 2, 1]
    manager.save()
    assert controller(strategy=strategy).restored == manager.latest_checkpoint
    assert len(made) == 3
    with strategy_of(1).scope(), pytest.raises(ContextError, match="leave that scope first"):
        controller(strategy=strategy)


@pytest.mark.parametrize(
    "name",
    [
        "summary_interval",
        "summary_dir",
        "eval_summary_dir",
        "summary_manager",
        "eval_summary_manager",
    ],
)
def test_orbits_summaries_are_refused_and_their_absence_accepted(name: str) -> None:
    given: dict[str, Any] = {name: "logs"}
    with pytest.raises(UnsupportedError, match=f"got {name}='logs'. Leave {name} out, and train"):
        dl.Controller(global_step=dl.Variable(0), evaluator=Summing(), **given)
    absent: dict[str, Any] = {name: None, "train_actions": None, "eval_actions": None}
    controller = dl.Controller(global_step=dl.Variable(0), evaluator=Summing(), **absent)
    assert controller.evaluate() == {"total": 10}


@pytest.mark.parametrize("wrong", [3, 1.5, np.int64(3), np.zeros(2), "step"])
def test_a_global_step_that_is_no_variable_is_refused(wrong: Any) -> None:
    class Trainer(dl.StandardTrainer):
        def train_step(self, iterator: Any) -> None:
            next(iterator)

    trainer = Trainer(dl.data.Dataset.range(4).batch(2))
    with pytest.raises(dl.errors.ArgumentTypeError, match="global_step must be the variable"):
        dl.Controller(trainer=trainer, global_step=wrong, steps_per_loop=1).train(1)


def numbers(count: int) -> dl.data.Dataset:
    return dl.data.Dataset.range(count)


DATA: Final[dict[str, Callable[[int], Any]]] = {
    "distributed": lambda count: strategy_of(2).experimental_distribute_dataset(
        numbers(2 * count).batch(2)
    ),
    "dataset": numbers,
    "list": lambda count: list(range(count)),
    "generator": lambda count: (number for number in range(count)),
}


def all_in_one_loop(iterator: Any) -> int:
    return sum(1 for _ in iterator)


def with_a_default(iterator: Any) -> int | None:
    return None if next(iterator, None) is None else 1


def with_a_default_and_a_result(iterator: Any) -> int:
    return 0 if next(iterator, None) is None else 1


def catching(iterator: Any) -> int | None:
    try:
        next(iterator)
    except StopIteration:
        return None
    return 1


def with_an_optional(iterator: Any) -> int | None:
    return 1 if iterator.get_next_as_optional().has_value() else None


def two_at_once(iterator: Any) -> int:
    return len(list(islice(iterator, 2)))


class ReadsAhead:
    """Takes elements before it returns them, as `flax.jax_utils.prefetch_to_device` does."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ahead: Iterator[Any] | None = None

    def __call__(self, iterator: Any) -> int:
        self.ahead = self.ahead or self.elements(iterator)
        next(self.ahead)
        return 1

    def elements(self, iterator: Any) -> Iterator[Any]:
        ready = deque(islice(iterator, self.size))
        while ready:
            yield ready.popleft()
            ready.extend(islice(iterator, 1))


class ReadsInAThread:
    """Takes all elements in a thread before the first one is returned."""

    def __init__(self) -> None:
        self.ready: queue.SimpleQueue[Any] | None = None

    def __call__(self, iterator: Any) -> int:
        if self.ready is None:
            self.ready = queue.SimpleQueue()
            thread = threading.Thread(target=self.read, args=(iterator, self.ready))
            thread.start()
            thread.join()
        if self.ready.get() is None:
            raise StopIteration
        return 1

    def read(self, iterator: Any, ready: queue.SimpleQueue[Any]) -> None:
        for element in iterator:
            ready.put(element)
        ready.put(None)


class Stepping(dl.StandardEvaluator):
    """Adds up what a function returns for each step, and keeps all results."""

    def __init__(self, dataset: Any, step: Callable[[Any], Any]) -> None:
        super().__init__(dataset)
        self.step = step
        self.results = list[Any]()

    def eval_step(self, iterator: Iterator[Any]) -> Any:
        return self.step(iterator)

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        self.results.append(step_outputs)

    def eval_end(self, *args: Any) -> dict[str, Any]:
        return {"count": sum(self.results)}


class Taking(dl.StandardTrainer):
    """Takes steps with a function, and counts what it returns."""

    def __init__(self, dataset: Any, step: Callable[[Any], Any]) -> None:
        super().__init__(dataset)
        self.step = step
        self.count = 0

    def train_step(self, iterator: Iterator[Any]) -> None:
        self.count += self.step(iterator) or 0


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("steps", [-1, 9])
@pytest.mark.parametrize(
    "step", [with_a_default, with_a_default_and_a_result, catching, with_an_optional, two_at_once]
)
def test_an_evaluation_ends_after_a_step_that_met_the_end_and_returned(
    step: Callable[[Any], Any], steps: int, data: str
) -> None:
    if step is with_an_optional and data in ("list", "generator"):
        data = "dataset"  # plain iterators have no such method
    for count in (0, 1, 2, 3, 5):
        evaluator = Stepping(DATA[data](count), step)
        assert evaluator.evaluate(steps) == {"count": count}
        assert None not in evaluator.results


@pytest.mark.parametrize("data", DATA)
def test_an_evaluation_ends_after_the_only_step_that_read_all_and_says_so(data: str) -> None:
    evaluator = Stepping(DATA[data](4), all_in_one_loop)
    with pytest.warns(RuntimeWarning, match="the first one read all 4") as caught:
        assert evaluator.evaluate() == {"count": 4}
    assert evaluator.results == [4]
    assert Path(caught[0].filename) == Path(__file__)
    for count in (0, 1):
        assert Stepping(DATA[data](count), all_in_one_loop).evaluate() == {"count": count}
    assert Stepping(DATA[data](4), all_in_one_loop).evaluate(1) == {"count": 4}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    "make", [ReadsInAThread, *(lambda n=n: ReadsAhead(n) for n in (1, 2, 3, 4))]
)
def test_steps_that_read_ahead_go_on_to_the_last_element(
    make: Callable[[], Callable[[Any], int]], data: str
) -> None:
    for count, steps in ((4, -1), (5, -1), (6, -1), (5, 5), (5, 9)):
        evaluator = Stepping(DATA[data](count), make())
        evaluator.evaluate(steps)
        assert evaluator.results == [1] * count
    trainer = Taking(DATA[data](5), make())
    trainer.train(2)
    trainer.train(3)
    assert trainer.count == 5
    with pytest.raises(OutOfRangeError, match="ended after 0 of 1 steps"):
        trainer.train(1)


def test_an_evaluation_of_all_data_says_once_when_it_ends_where_steps_read_nothing() -> None:
    own = iter(range(250))
    evaluator = Stepping(numbers(4), lambda _: next(own) * 0 + 1)
    with pytest.warns(RuntimeWarning, match="100 steps have read nothing") as caught:
        assert evaluator.evaluate() == {"count": 250}
    assert [Path(each.filename) for each in caught] == [Path(__file__)]
    own = iter(range(250))
    assert Stepping(numbers(4), lambda _: next(own) * 0 + 1).evaluate(250) == {"count": 250}
    own = iter(range(99))
    assert Stepping(numbers(4), lambda _: next(own) * 0 + 1).evaluate() == {"count": 99}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("step", [all_in_one_loop, with_a_default, catching, two_at_once])
def test_a_training_step_that_meets_the_end_and_returns_is_refused_where_steps_are_left(
    step: Callable[[Any], Any], data: str
) -> None:
    trainer = Taking(DATA[data](5), step)
    with pytest.raises(OutOfRangeError, match="train_step takes one step, with next"):
        trainer.train(100)
    assert trainer.count == 5
    with pytest.raises(OutOfRangeError, match="train_step takes one step, with next"):
        trainer.train(1)


def test_a_training_of_one_step_may_read_all() -> None:
    trainer = Taking(numbers(5), all_in_one_loop)
    trainer.train(1)
    assert trainer.count == 5
    with pytest.raises(OutOfRangeError, match="step 1 of 1 read 0 elements"):
        trainer.train(1)


def test_steps_are_given_the_iterator_of_the_dataset_with_its_methods() -> None:
    strategy = strategy_of(2)
    dataset = strategy.experimental_distribute_dataset(numbers(8).batch(2))
    given = list[Any]()

    def step(iterator: Any) -> int:
        given.append(iterator)
        next(iterator)
        return 1

    evaluator = Stepping(dataset, step)
    assert evaluator.evaluate() == {"count": 4}
    assert isinstance(given[0], dl.DistributedIterator)
    trainer = Taking(dataset, step)
    trainer.train(2)
    assert given[-1] is trainer.train_iterator
    trainer.train_iterator = iter(dataset)  # another epoch
    trainer.train(4)
    assert trainer.count == 6
    generator = Taking(DATA["generator"](3), lambda iterator: iterator.close())
    generator.train(1)
    with pytest.raises(StopIteration):
        next(generator.train_iterator)


@pytest.mark.parametrize("distributed", [False, True])
def test_all_of_endless_data_can_not_be_evaluated(distributed: bool) -> None:
    dataset: Any = numbers(4).repeat().batch(2)
    if distributed:
        dataset = strategy_of(2).experimental_distribute_dataset(dataset)
    evaluator = Stepping(dataset, with_a_default)
    controller = dl.Controller(global_step=dl.Variable(0), evaluator=evaluator)
    for evaluate in (evaluator.evaluate, controller.evaluate):
        with pytest.raises(InvalidArgumentError, match="needs a dataset with an end"):
            evaluate()
        assert evaluator.results == []
        assert evaluate(3) == {"count": 3}
        evaluator.results.clear()

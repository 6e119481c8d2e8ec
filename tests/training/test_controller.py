"""Controller, StandardTrainer and StandardEvaluator: steps, actions, checkpoints, end of data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    DistlabError,
    InvalidArgumentError,
    OutOfRangeError,
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


def test_a_new_program_goes_on_at_the_next_batch(tmp_path: Path) -> None:
    trainer = Counting(4, epochs=3)
    controller = dl.Controller(
        trainer=trainer,
        global_step=trainer.global_step,
        steps_per_loop=2,
        checkpoint_manager=managed(trainer, tmp_path),
    )
    assert controller.restored is None
    controller.train(4)
    later = Counting(3, epochs=3)
    controller = dl.Controller(
        trainer=later, global_step=later.global_step, checkpoint_manager=managed(later, tmp_path)
    )
    assert str(controller.restored).endswith("ckpt-4")
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
    wrong: Any = np.int64(3)
    with pytest.raises(ArgumentTypeError, match="global_step must be the variable"):
        dl.Controller(trainer=Counting(2), global_step=wrong)


def test_eval_reduce_joins_step_results_to_the_final_state() -> None:
    evaluator = Reducing()
    assert evaluator.evaluate() == {"total": 10}
    assert evaluator.calls == [
        ("reduce", 0, 1),
        ("reduce", 1, 5),
        ("reduce", 6, 4),
        ("end", 10),
    ]
    assert evaluator.evaluate(1) == {"total": 1}
    assert dl.Controller(global_step=dl.Variable(0), evaluator=evaluator).evaluate(2) == {
        "total": 6
    }


def test_eval_end_gets_the_last_state_unless_it_is_none() -> None:
    without_steps, unreduced = Reducing(7, examples=0), Unreduced(7, examples=3)
    without_steps.evaluate()
    assert without_steps.calls == [("end", 7)]
    unreduced.evaluate()
    assert unreduced.calls == [("reduce", 7, 1), ("reduce", None, 2), ("end",)]


def test_an_evaluation_ends_where_get_next_finds_no_more() -> None:
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


def test_init_fn_makes_variables_in_the_controllers_scope(tmp_path: Path) -> None:
    strategy, trainer = strategy_of(2), Counting(2)
    made = list[dl.Variable]()
    manager = managed(trainer, tmp_path / "own", init_fn=lambda: made.append(dl.Variable(1.0)))

    def controller() -> dl.Controller:
        return dl.Controller(
            global_step=trainer.global_step, checkpoint_manager=manager, trainer=trainer,
            strategy=strategy,
        )  # fmt: skip

    assert controller().strategy is made[0].strategy is strategy
    manager.save()
    assert controller().restored == manager.latest_checkpoint
    assert len(made) == 1
    with strategy_of(1).scope(), pytest.raises(ContextError, match="leave that scope first"):
        controller()


def test_all_of_endless_data_can_not_be_evaluated() -> None:
    evaluator = Reducing()
    evaluator.eval_dataset = dl.data.Dataset.range(4).repeat().batch(2)
    controller = dl.Controller(global_step=dl.Variable(0), evaluator=evaluator)
    for evaluate in (evaluator.evaluate, controller.evaluate):
        with pytest.raises(InvalidArgumentError, match="needs a dataset with an end"):
            evaluate()
        assert evaluator.calls == []
        assert evaluate(3) == {"total": 7}
        evaluator.calls.clear()

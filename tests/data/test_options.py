"""Options: tf.data's fields, types and rules of merging, and what has no effect."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from typing import Any

import pytest

import distlab as dl
from distlab.data import AutoShardPolicy, AutotuneAlgorithm, Dataset, ExternalStatePolicy, Options
from distlab.data.sharding import option_fields as _option_fields
from distlab.errors import ArgumentTypeError, NoEffectWarning, OptionError

POLICY = "experimental_distribute.auto_shard_policy"
FIELDS: dict[str, tuple[Any, Any]] = {
    "deterministic": (True, False),
    "experimental_external_state_policy": (None, ExternalStatePolicy.IGNORE),
    "framework_type": (None, ["a"]),
    "autotune.autotune_algorithm": (None, AutotuneAlgorithm.STAGE_BASED),
    "experimental_distribute.num_devices": (None, 8),
    "experimental_optimization.map_fusion": (False, True),
    "threading.private_threadpool_size": (None, 16),
}
"""Some fields without effect: a value that is the case anyhow, and one that is not."""


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each test be the first in which a field is set."""
    monkeypatch.setattr(_option_fields, "_reported", set())


def _holder(options: Options, path: str) -> tuple[Any, str]:
    *parts, field = path.split(".")
    holder: Any = options
    for part in parts:
        holder = getattr(holder, part)
    return holder, field


def _get(options: Options, path: str) -> Any:
    return getattr(*_holder(options, path))


def _options(**fields: Any) -> Options:
    """Returns options with fields, whose names have __ for dots; says nothing of no effect."""
    options = Options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        for path, value in fields.items():
            holder, field = _holder(options, path.replace("__", "."))
            setattr(holder, field, value)
    return options


def test_fields_without_effect_are_kept_and_warn_once() -> None:
    for path, (already, other) in FIELDS.items():
        options = Options()
        holder, field = _holder(options, path)
        assert getattr(holder, field) is None
        if already is not None:
            setattr(holder, field, already)
        with pytest.warns(NoEffectWarning, match=rf"\w+\.{field} has no effect: .+") as caught:
            setattr(holder, field, other)
        assert caught[0].filename == __file__
        setattr(holder, field, other)  # a second warning would be an error here
        dataset = Dataset.range(3).with_options(options)
        assert _get(dataset.map(lambda x: x).batch(2).options(), path) == other


def test_values_of_another_type_are_refused() -> None:
    for path in (*FIELDS, POLICY, "threading", "autotune"):
        holder, field = _holder(Options(), path)
        before = getattr(holder, field)
        for value in (object(), None, 1.5):
            with pytest.raises(ArgumentTypeError, match=rf"\.{field} must be of type"):
                setattr(holder, field, value)
        assert getattr(holder, field) == before


def test_former_names_mean_the_same_fields() -> None:
    options = Options()
    with pytest.warns(NoEffectWarning, match=r"Options\.deterministic has no effect") as caught:
        options.experimental_deterministic = False
    assert caught[0].filename == __file__
    assert options.deterministic is False
    with pytest.warns(NoEffectWarning, match="private_threadpool_size"):
        options.experimental_threading.private_threadpool_size = 3
    assert options.threading.private_threadpool_size == 3
    new = dl.data.ThreadingOptions()
    options.experimental_threading = new
    assert options.threading is new


def test_later_options_replace_earlier_ones_field_by_field() -> None:
    first = _options(deterministic=False, threading__private_threadpool_size=4)
    second = _options(threading__max_intra_op_parallelism=1, autotune__cpu_budget=2)
    dataset = Dataset.range(3).with_options(first).with_options(second)
    merged = dataset.options()
    assert merged.deterministic is False
    assert merged.threading.private_threadpool_size == 4
    assert merged.threading.max_intra_op_parallelism == 1
    assert merged.autotune.cpu_budget == 2
    assert first.merge(second) == merged
    assert first.threading.max_intra_op_parallelism is None


def test_a_change_is_logged_and_the_default_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = _options(**{POLICY.replace(".", "__"): AutoShardPolicy.DATA})
    auto = _options(**{POLICY.replace(".", "__"): AutoShardPolicy.AUTO})
    off = _options(**{POLICY.replace(".", "__"): AutoShardPolicy.OFF})
    dataset = Dataset.range(3).with_options(data)
    with caplog.at_level(logging.WARNING, "distlab"):
        assert _get(dataset.with_options(auto).options(), POLICY) is AutoShardPolicy.DATA
        assert caplog.messages == []
        assert _get(dataset.with_options(off).options(), POLICY) is AutoShardPolicy.OFF
    (message,) = caplog.messages
    assert "auto_shard_policy changes from <AutoShardPolicy.DATA: 2>" in message


def test_datasets_that_are_put_together_merge_their_options() -> None:
    data = Dataset.range(3).with_options(
        _options(**{POLICY.replace(".", "__"): AutoShardPolicy.DATA})
    )
    named = Dataset.range(3).with_options(_options(dataset_name="b"))
    for dataset in (Dataset.zip((data, named)), data.concatenate(named)):
        assert _get(dataset.options(), POLICY) is AutoShardPolicy.DATA
        assert dataset.options().dataset_name == "b"


def test_the_options_of_a_dataset_can_not_be_changed_by_mistake() -> None:
    options = _options(framework_type=["a"])
    dataset = Dataset.range(3).with_options(options)
    given = dataset.options()
    with pytest.raises(OptionError, match=r"no effect.*pass that to dataset\.with_options"):
        given.deterministic = True
    with pytest.raises(OptionError, match="private_threadpool_size = 2"):
        given.threading.private_threadpool_size = 2
    assert given.framework_type is not None
    given.framework_type.append("b")
    assert options.framework_type is not None
    options.framework_type.append("c")
    assert dataset.options().framework_type == ["a"]
    assert issubclass(OptionError, ValueError)  # as in TensorFlow


def test_options_compare_and_are_copied_by_their_fields() -> None:
    options = _options(deterministic=False, autotune__cpu_budget=2)
    assert options != Options()
    assert Options() == Options()
    assert Options() != dl.data.ThreadingOptions()
    for copied in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert copied == options
        copied.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
        assert copied != options
    with pytest.raises(TypeError, match="unhashable"):
        hash(options)
    shown = "Options(autotune=AutotuneOptions(cpu_budget=2), deterministic=False)"
    assert repr(options) == shown


def test_the_options_that_training_programs_set_are_accepted() -> None:
    """As in the input pipelines of ResNet, of Kaggle's TPU notebooks and of TF-Agents."""

    def pipeline_options() -> dl.data.Options:
        options = dl.data.Options()
        options.experimental_deterministic = False
        options.experimental_optimization.map_parallelization = True
        options.experimental_optimization.parallel_batch = True
        options.experimental_threading.max_intra_op_parallelism = 1
        options.threading.private_threadpool_size = 48
        options.experimental_slack = True
        options.autotune.enabled = True
        options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.OFF
        return options

    with pytest.warns(NoEffectWarning) as caught:
        options = pipeline_options()
    assert len(caught) == 7
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = Dataset.range(8).batch(4).with_options(options)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    assert [part.tolist() for part in batch.values] == [[0, 1], [2, 3]]

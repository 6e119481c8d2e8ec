"""Options: tf.data's fields, types and rules of merging, and fields without effect."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

import distlab as dl
from distlab import user_code
from distlab.data import AutoShardPolicy, AutotuneAlgorithm, Dataset, ExternalStatePolicy, Options
from distlab.errors import ArgumentTypeError, NoEffectWarning, OptionError

POLICY = "experimental_distribute.auto_shard_policy"
FIELDS: dict[str, tuple[Any, Any]] = {
    "deterministic": (True, False),
    "experimental_external_state_policy": (None, ExternalStatePolicy.IGNORE),
    "autotune.autotune_algorithm": (None, AutotuneAlgorithm.STAGE_BASED),
    "experimental_distribute.num_devices": (None, 8),
    "experimental_optimization.map_fusion": (False, True),
    "threading.private_threadpool_size": (None, 16),
}
"""Some fields without effect: a value that is the case anyhow, and one that is not."""


@pytest.fixture(autouse=True)
def _unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each test be the first in which a field is set."""
    monkeypatch.setattr(user_code, "_without_effect", set())


def _holder(options: Options, path: str) -> tuple[Any, str]:
    *parts, field = path.split(".")
    holder: Any = options
    for part in parts:
        holder = getattr(holder, part)
    return holder, field


def _options(fields: dict[str, Any]) -> Options:
    options = Options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        for path, value in fields.items():
            holder, field = _holder(options, path)
            setattr(holder, field, value)
    return options


def test_fields_without_effect_are_kept_and_warn_once() -> None:
    for path, (already, other) in FIELDS.items():
        options = Options()
        holder, field = _holder(options, path)
        assert getattr(holder, field) is None
        setattr(holder, field, already)
        with pytest.warns(NoEffectWarning, match=rf"\w+\.{field} has no effect: .+") as caught:
            setattr(holder, field, other)
        assert caught[0].filename == __file__
        setattr(holder, field, other)  # a second warning would be an error here
        dataset = Dataset.range(3).with_options(options)
        assert getattr(*_holder(dataset.map(lambda x: x).batch(2).options(), path)) == other


def test_values_of_another_type_are_refused() -> None:
    for path in (*FIELDS, POLICY, "threading", "autotune"):
        holder, field = _holder(Options(), path)
        with pytest.raises(ArgumentTypeError, match=rf"\.{field} must be of type"):
            setattr(holder, field, 1.5)
    with pytest.raises(AttributeError, match=r"no field Options\.determinism; there are autotune,"):
        Options().determinism = True


def test_former_names_mean_the_same_fields() -> None:
    options = Options()
    with pytest.warns(NoEffectWarning, match=r"Options\.deterministic has no effect") as caught:
        options.experimental_deterministic = False
    assert caught[0].filename == __file__
    assert options.deterministic is False
    with pytest.warns(NoEffectWarning, match="private_threadpool_size"):
        options.experimental_threading.private_threadpool_size = 3
    assert options.threading.private_threadpool_size == 3


def test_options_are_merged_by_the_fields_that_are_set() -> None:
    first = _options({"threading.private_threadpool_size": 4, POLICY: AutoShardPolicy.DATA})
    second = _options({"threading.max_intra_op_parallelism": 1, "dataset_name": "b"})
    data, named = (Dataset.range(3).with_options(options) for options in (first, second))
    merged = first.merge(second)
    for dataset in (data.with_options(second), Dataset.zip((data, named)), data.concatenate(named)):
        assert dataset.options() == merged
    assert merged.threading.private_threadpool_size == 4
    assert merged.threading.max_intra_op_parallelism == 1
    assert merged.experimental_distribute.auto_shard_policy is AutoShardPolicy.DATA
    assert first.threading.max_intra_op_parallelism is None
    off = _options({POLICY: AutoShardPolicy.OFF})
    assert first.merge(off).experimental_distribute == off.experimental_distribute


def test_the_options_of_a_dataset_can_not_be_changed_by_mistake() -> None:
    options = _options({"deterministic": False})
    dataset = Dataset.range(3).with_options(options)
    given = dataset.options()
    with pytest.raises(OptionError, match=r"no effect.*pass that to dataset\.with_options"):
        given.deterministic = True
    with pytest.raises(OptionError, match="private_threadpool_size = 2"):
        given.threading.private_threadpool_size = 2
    options.deterministic = True
    assert dataset.options().deterministic is False
    assert issubclass(OptionError, ValueError)  # as in TensorFlow


def test_options_compare_and_are_copied_by_their_fields() -> None:
    options = _options({"deterministic": False, "autotune.cpu_budget": 2})
    assert options != Options()
    assert Options() == Options()
    for copied in (copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert copied == options
        copied.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
        assert copied != options
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

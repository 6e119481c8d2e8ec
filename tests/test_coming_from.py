"""docs/coming-from-tf-distribute.md names everything, and what it says is true."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coming-from-tf-distribute.md").read_text()

# `dir()` of the modules of TensorFlow 2.21; modules are named where they have names of their own.
TF_DISTRIBUTE = """
CrossDeviceOps DistributedDataset DistributedIterator DistributedValues
HierarchicalCopyAllReduce InputContext InputOptions InputReplicationMode MirroredStrategy
MultiWorkerMirroredStrategy NcclAllReduce OneDeviceStrategy ParameterServerStrategy ReduceOp
ReductionToOneDevice ReplicaContext RunOptions Server Strategy StrategyExtended TPUStrategy
cluster_resolver coordinator experimental_set_strategy get_replica_context get_strategy
has_strategy in_cross_replica_context experimental.CentralStorageStrategy
experimental.CollectiveCommunication experimental.CollectiveHints
experimental.CommunicationImplementation experimental.CommunicationOptions
experimental.MultiWorkerMirroredStrategy experimental.ParameterServerStrategy
experimental.PreemptionCheckpointHandler experimental.PreemptionWatcher experimental.TPUStrategy
experimental.TerminationConfig experimental.ValueContext experimental.coordinator
experimental.partitioners experimental.rpc cluster_resolver.ClusterResolver
cluster_resolver.GCEClusterResolver cluster_resolver.KubernetesClusterResolver
cluster_resolver.KubernetesExecutableLocation cluster_resolver.SimpleClusterResolver
cluster_resolver.SlurmClusterResolver cluster_resolver.TFConfigClusterResolver
cluster_resolver.TPUClusterResolver cluster_resolver.UnionResolver
coordinator.ClusterCoordinator coordinator.PerWorkerValue coordinator.RemoteValue
coordinator.experimental_get_current_worker_index experimental.coordinator.PerWorkerValues
"""
METHODS = """
cluster_resolver colocate_vars_with configure distribute_datasets_from_function
experimental_distribute_dataset experimental_distribute_datasets_from_function
experimental_distribute_values_from_function experimental_local_results experimental_run
extended gather group make_dataset_iterator make_input_fn_iterator num_replicas_in_sync reduce
run scope unwrap update_config_proto batch_reduce_to colocate_vars_with
experimental_require_static_shapes parameter_devices reduce_to update value_container
variable_created_in_scope worker_devices all_gather all_reduce devices merge_call
replica_id_in_sync_group strategy element_spec get_next get_next_as_optional
experimental_assign_to_logical_device experimental_replicate_to_logical_devices
experimental_split_to_logical_devices server_def target experimental_make_numpy_dataset
broadcast_to call_for_each_replica experimental_between_graph experimental_run_steps_on_iterator
experimental_should_init non_slot_devices read_var should_checkpoint should_save_summary
update_non_slot get_loss_reduction experimental_run_v2
"""
NOT_HERE = {
    "experimental.rpc",
}


def test_every_name_of_tf_distribute_is_on_the_page() -> None:
    assert [name for name in TF_DISTRIBUTE.split() if f"`{name}`" not in PAGE] == []


def test_names_of_tf_distribute_exist_here() -> None:
    assert {name for name in TF_DISTRIBUTE.split() if _find(name) is None} == NOT_HERE


def test_every_method_is_on_the_page() -> None:
    assert [name for name in METHODS.split() if not re.search(rf"[`.]{name}`", PAGE)] == []


def test_every_name_on_the_page_exists() -> None:
    names = re.findall(r"`dl\.([\w.]+?)(?:\([^`]*)?`", PAGE)
    assert len(names) > 100
    assert [name for name in names if _find(name) is None] == []


def test_every_cited_test_exists() -> None:
    cited = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(cited) > 25
    assert [
        f"{path}::{name}"
        for path, name in cited
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()
    ] == []


def _find(name: str) -> object:
    found: object = dl
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def test_the_program_on_the_page_runs() -> None:
    block = PAGE.split("```python")[1].split("```")[0]
    lines = block.splitlines()[1:]
    at = lines[0].index("# distlab")
    right = [line[at:] if len(line) > at else "" for line in lines]
    program = "\n".join(line for line in right if "use_cpu_devices" not in line)
    scope: dict[str, object] = {}
    exec(program, scope)
    weight = scope["w"]
    assert isinstance(weight, dl.Variable)
    x = np.arange(64, dtype=np.float32) / 64
    plain = 0.0
    for batch in x.reshape(4, 16):
        plain -= float((2 * batch * (plain * batch - 1)).mean())
    assert float(weight.value()) == pytest.approx(plain, rel=1e-5)


def test_python_runs_once_for_each_set_of_shapes() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    calls: list[int] = []

    def step(x: jax.Array) -> jax.Array:
        calls.append(1)
        return x + len(calls)

    values = strategy.experimental_distribute_values_from_function
    two = values(lambda _: jnp.zeros(2))
    assert [strategy.run(step, args=(two,)).values[0].tolist() for _ in range(3)] == [[1, 1]] * 3
    three = values(lambda _: jnp.zeros(3))
    assert strategy.run(step, args=(three,)).values[1].tolist() == [2, 2, 2]
    eager = dl.RunOptions(run_eagerly=True)
    each = strategy.run(step, args=(two,), options=eager)
    assert [v.tolist() for v in each.values] == [[3, 3], [4, 4]]


def test_int64_data_arrives_as_int32() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = dl.data.Dataset.range(4).batch(4)
    assert dataset.element_spec.dtype == np.int64
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    assert [v.dtype for v in batch.values] == [jnp.int32, jnp.int32]

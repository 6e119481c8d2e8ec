"""Slips that others made and that went through, or were told of in JAX's words only."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.devices import in_flight
from distlab.devices.thread_frames import frames_of
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    ClusterSpecError,
    ContextError,
    DeviceError,
    DistlabError,
    InvalidArgumentError,
    NotFoundError,
    RecordError,
    StructureError,
    UnsupportedError,
    ValueShapeError,
)
from distlab.values.distributed import PerReplica
from tests.devices.programs import finish
from tests.misuse.table import require_harmless_refusal, require_refusal
from tests.patience import wait_until

ON_READ: Final = dl.VariableSynchronization.ON_READ
SUM: Final = dl.VariableAggregation.SUM
ADDRESS: Final = "gs://bucket/run"


def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def per_replica(*numbers: Any) -> Any:
    return strategy().experimental_distribute_values_from_function(
        lambda context: np.asarray(numbers[context.replica_id_in_sync_group])
    )


def set_on_a_variable(name: str, value: object) -> None:
    setattr(dl.Variable(1.0), name, value)


class Summed(dl.CrossDeviceOps):
    """An algorithm of one's own that forgets to add up."""

    algorithm = "forgets"

    def sum_rows(self, stacked: Any, mesh: Any) -> Any:
        return stacked

    def sum_in_program(self, values: Any, replicas: int) -> Any:
        return values[:-1]


def reduced_by_ones_own() -> object:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Summed())
    return strategy.reduce("SUM", strategy.run(lambda: jnp.ones(3)), axis=None)


def all_reduced_by_ones_own() -> object:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Summed())
    return strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", jnp.ones(3)))


def in_another_like_it() -> object:
    with strategy().scope():
        return strategy().run(lambda: 1)


def worker_of_the_other_job() -> object:
    cluster = dl.ClusterSpec({"worker": ["localhost:9"], "ps": ["localhost:11"]})
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster, task_type="ps", task_id=0)
    return dl.MultiWorkerMirroredStrategy(resolver)


def padded(value: Any) -> object:
    rows = dl.data.Dataset.range(1, 4).map(lambda x: np.ones(x, np.int64))
    return list(rows.padded_batch(3, padding_values=value))


def masked_mean(mask: Any) -> None:
    dl.metrics.Mean().update_state(jnp.arange(3.0), mask=mask)


def accuracy(labels: Any, logits: Any) -> None:
    dl.metrics.Accuracy().update_state(jnp.asarray(labels), jnp.asarray(logits))


LOGITS: Final = [[2.0, 1.0], [0.0, 3.0]]

WRONG: Final[dict[str, tuple[Callable[[], object], type[DistlabError], str]]] = {
    "the truth of flags": (
        lambda: bool(per_replica(True, False)),
        StructureError,
        "can't be used as one array or number",
    ),
    "the truth of counts": (lambda: bool(per_replica(0, 1)), StructureError, "PerReplica"),
    "a component that is not there": (
        lambda: per_replica(1, 2).component(2),
        InvalidArgumentError,
        r"one of \[0, 1\], got 2",
    ),
    "a component by a fraction": (
        lambda: per_replica(1, 2).component(0.5),
        InvalidArgumentError,
        r"got 0\.5",
    ),
    "an axis that is no number": (
        lambda: strategy().gather(per_replica([1], [2]), False),
        ValueShapeError,
        "whose number must be a whole one, got False",
    ),
    "a fraction for whole numbers": (
        lambda: dl.Variable(0, name="count").assign(1.5),
        ValueShapeError,
        r"count\.assign needs numbers of int32, got 1\.5",
    ),
    "a fraction added to whole numbers": (
        lambda: dl.Variable(0).assign_add(0.7),
        ValueShapeError,
        r"0\.7",
    ),
    "a number that a dtype does not have": (
        lambda: dl.Variable(np.uint8(1)).assign(300),
        ValueShapeError,
        "from 0 to 255, got 300",
    ),
    "a negative number for an unsigned one": (
        lambda: dl.Variable(np.uint8(1)).assign_add([-1][0]),
        ValueShapeError,
        "-1",
    ),
    "two for a truth value": (lambda: dl.Variable(True).assign(2), ValueShapeError, "got 2"),
    "an initial fraction of whole numbers": (
        lambda: dl.Variable([0.5, 1.0], dtype="int32"),
        ValueShapeError,
        r"\[0\.5, 1\.0\]",
    ),
    "a dtype is set": (
        lambda: set_on_a_variable("dtype", "int32"),
        ArgumentTypeError,
        "dtype of .* was chosen when it was made",
    ),
    "an aggregation is set": (
        lambda: set_on_a_variable("aggregation", SUM),
        ArgumentTypeError,
        "aggregation",
    ),
    "a constraint": (
        lambda: dl.Variable(1.0, constraint=jnp.abs),  # type: ignore[call-arg]
        UnsupportedError,
        "no argument constraint",
    ),
    "a shape": (
        lambda: dl.Variable(jnp.ones(3), shape=(None,)),  # type: ignore[call-arg]
        UnsupportedError,
        r"no argument shape, got \(None,\)",
    ),
    "trainable copies that differ": (
        lambda: dl.Variable(1.0, synchronization=ON_READ, trainable=True),
        ArgumentValueError,
        "ON_READ copies differ",
    ),
    "an algorithm that adds nothing up": (
        reduced_by_ones_own,
        ValueShapeError,
        r"Summed\(\) must return a list with the sum of each value, as JAX's arrays ",
    ),
    "an algorithm that loses a value": (all_reduced_by_ones_own, ValueShapeError, "Summed"),
    "a scope of a strategy like it": (
        in_another_like_it,
        ContextError,
        r"inside the scope of another MirroredStrategy\(CPU:0, CPU:1\), made apart",
    ),
    "devices in a set": (
        lambda: dl.MirroredStrategy({"CPU:0", "CPU:1"}),  # type: ignore[arg-type]
        DeviceError,
        "whose order is that of the replicas",
    ),
    "a GPU that is not there": (
        lambda: dl.MirroredStrategy(["GPU:0"]),
        DeviceError,
        "no device GPU:0.*Leave the devices out",
    ),
    "a parameter server among workers": (
        worker_of_the_other_job,
        ClusterSpecError,
        "this process is ps:0",
    ),
    "padding that whole numbers do not have": (
        lambda: padded(float("nan")),
        InvalidArgumentError,
        "int64, got nan",
    ),
    "a dataset of a number": (
        lambda: dl.data.Dataset(3),  # type: ignore[arg-type]
        ArgumentTypeError,
        "made of a plan, got 3",
    ),
    "a shard of a number": (
        lambda: dl.data.auto_shard(3, 2, 1),  # type: ignore[arg-type]
        ArgumentTypeError,
        "needs a dl.data.Dataset, got 3",
    ),
    "an iterator that is none": (
        lambda: strategy().experimental_run(lambda x: x, 3),  # type: ignore[arg-type]
        ArgumentTypeError,
        "needs an iterator of the strategy, got 3",
    ),
    "a core that is not there": (
        lambda: dl.tpu.DeviceAssignment.build(dl.tpu.Topology(), 2).coordinates(-1),
        InvalidArgumentError,
        "got replica -1",
    ),
    "a mask that broadcasts": (
        lambda: masked_mean(jnp.ones((3, 1), bool)),
        ValueShapeError,
        r"the shape \[3\], got \[3, 1\]",
    ),
    "a mask of another length": (lambda: masked_mean(jnp.ones(2, bool)), ValueShapeError, "mask"),
    "labels and logits swapped": (
        lambda: accuracy(LOGITS, [0, 1]),
        ValueShapeError,
        r"labels, then logits.*labels float32\[2, 2\] and logits int32\[2\]",
    ),
    "labels of another number": (
        lambda: accuracy([0, 1, 1], LOGITS),
        ValueShapeError,
        r"labels int32\[3\]",
    ),
    "labels one-hot": (
        lambda: accuracy([[1, 0], [0, 1]], LOGITS),
        ValueShapeError,
        r"labels\.argmax",
    ),
    "labels as fractions": (lambda: accuracy([0.0, 1.0], LOGITS), ValueShapeError, "float32"),
    "records that are not there": (
        lambda: list(dl.data.TFRecordDataset("no.tfrecord")),
        NotFoundError,
        r"no file 'no\.tfrecord'",
    ),
    "compressed records that are not there": (
        lambda: list(dl.data.TFRecordDataset("no", compression_type="GZIP")),
        NotFoundError,
        "'no'",
    ),
    "lines that are not there": (
        lambda: list(dl.data.TextLineDataset("gs://bucket/lines")),
        NotFoundError,
        "Copy it to this machine",
    ),
    "a run at a URL": (lambda: dl.record(ADDRESS), ArgumentValueError, "record .*gs://bucket/run"),
    "a checkpoint at a URL": (
        lambda: dl.train.Checkpoint(v=dl.Variable(1.0)).save(ADDRESS),
        ArgumentValueError,
        "the URL 'gs://bucket/run'",
    ),
    "the newest checkpoint of a URL": (
        lambda: dl.train.CheckpointManager(dl.train.Checkpoint(step=1), ADDRESS),
        ArgumentValueError,
        "URL",
    ),
    "a checkpoint whose name can't be written": (
        lambda: dl.train.Checkpoint(v=dl.Variable(1.0)).save("check\0point"),
        ArgumentValueError,
        "UTF-8 characters other than NUL",
    ),
    "kept elements at a URL": (
        lambda: dl.data.Dataset.range(3).cache(ADDRESS),
        ArgumentValueError,
        "URL",
    ),
    "overwrite as text": (
        lambda: dl.record(None, overwrite="no"),  # type: ignore[arg-type]
        ArgumentTypeError,
        "overwrite must be True or False, got 'no'",
    ),
    "probe as text": (
        lambda: dl.record(None, probe="no"),  # type: ignore[arg-type]
        ArgumentTypeError,
        "probe must be True or False",
    ),
    "partial as text": (
        lambda: dl.train.Checkpoint(step=1).restore("c", partial="no"),  # type: ignore[arg-type]
        ArgumentTypeError,
        "partial must be True or False",
    ),
    "the result of a step without return": (
        lambda: strategy().reduce("SUM", strategy().run(lambda: None), axis=None),
        ValueShapeError,
        "reduce combines arrays and numbers, got None",
    ),
    "the rows of a step without return": (
        lambda: strategy().gather(strategy().run(lambda: None), axis=0),
        ValueShapeError,
        "gather combines arrays and numbers, got None",
    ),
    "a choice that is none": (
        lambda: dl.widgets.explorer().choose("foo", 3),
        ArgumentValueError,
        "no choice named 'foo'",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_is_refused_with_the_rule_the_value_and_the_remedy(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_harmless_refusal(tmp_path, monkeypatch, *WRONG[wrong])


def test_a_value_of_fractions_is_true_so_that_a_default_can_stand_beside_it() -> None:
    losses = strategy().run(lambda: jnp.ones(3))
    assert (losses or 3) is losses
    assert isinstance(losses, PerReplica)


@pytest.mark.parametrize("axis", [0, np.int64(0), -1])
def test_values_are_gathered_along_an_axis_of_any_whole_number(axis: int) -> None:
    assert strategy().gather(per_replica([1], [2]), axis).tolist() == [1, 2]


def test_numbers_that_a_dtype_holds_are_assigned() -> None:
    count, small, flag = dl.Variable(0), dl.Variable(np.uint8(1)), dl.Variable(True)
    count.assign(2.0)
    small.assign(255)
    flag.assign(0)
    assert [int(v.numpy()) for v in (count, small, flag)] == [2, 255, 0]
    assert dl.Variable([1, 2], dtype="float32").numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_known_index_outside_of_a_variable_is_refused_in_a_step_too(eagerly: bool) -> None:
    mirrored = strategy()
    with mirrored.scope():
        table = dl.Variable(jnp.zeros(3), aggregation=SUM)
    options = dl.RunOptions(run_eagerly=eagerly)
    for index in ([7], np.array([-1])):
        slices = dl.IndexedSlices(jnp.ones(1), index)
        with pytest.raises(InvalidArgumentError, match="Indices count from 0"):
            mirrored.run(lambda s=slices: table.scatter_add(s) and None, options=options)
    assert table.numpy().tolist() == [0, 0, 0]


def test_a_computed_index_outside_of_a_variable_changes_no_row() -> None:
    mirrored = strategy()
    with mirrored.scope():
        table = dl.Variable(jnp.zeros(3), aggregation=SUM)

    def step(indices: Any) -> None:
        table.scatter_add(dl.IndexedSlices(jnp.ones(4), indices))

    mirrored.run(step, args=(jnp.array([-1, 1, 3, -3]),))
    assert table.numpy().tolist() == [0, 2, 0]


def test_a_run_goes_on_where_the_program_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    with dl.record("run", tensorboard="logs") as recording:
        strategy().run(lambda: jnp.ones(()))
        monkeypatch.chdir(second)
        strategy().run(lambda: jnp.ones(()))
        recording.log(loss=1.0)
    with dl.Run.open(first / "run") as run:
        assert (run.summary()["steps"], run.summary()["status"]) == (2, "finished")
    assert len(list((first / "logs").iterdir())) == 1
    assert list(second.iterdir()) == []


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(CheckpointError, match=r"no regular file.*Choose another file"):
        dl.export(lambda x: 2 * x, jnp.zeros(3)).save(pipe)
    with dl.record(tmp_path / "run"):
        pass
    with (
        dl.Run.open(tmp_path / "run") as run,
        pytest.raises(RecordError, match=r"no regular file.*Name another file"),
    ):
        run.export(pipe, overwrite=True)
    assert pipe.is_fifo()


def test_a_function_in_the_background_that_waits_for_itself_is_told_so() -> None:
    begun = threading.Event()
    own: list[Any] = []

    def wait() -> Any:
        begun.wait(60)
        return own[0].result()

    own.append(dl.background(wait))
    begun.set()
    with pytest.raises(ContextError, match=r"wait waits for its own result.*outside"):
        own[0].result(60)


def test_threads_that_python_did_not_start_are_not_joined_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[threading.Thread] = []

    def step() -> None:
        strategy().run(lambda: jnp.ones(()))
        made.append(threading.current_thread())

    _thread.start_new_thread(step, ())
    wait_until(lambda: bool(made))
    wait_until(lambda: not frames_of(made[0].ident or 0))
    assert made[0].is_alive()  # as Python has it for ever
    assert in_flight._limit(made[0]) == 0


def test_an_interrupt_that_jax_makes_another_error_of_is_an_interrupt() -> None:
    def interrupted() -> None:
        raise RuntimeError(
            "Exception raised in callback: Traceback (most recent call last):\n"
            '  File "<string>", line 1, in <module>\nKeyboardInterrupt: \n'
        )

    with pytest.raises(KeyboardInterrupt):
        strategy().run(interrupted)
    with pytest.raises(ValueError, match="KeyboardInterrupt is a word"):
        strategy().run(_raises_another)


def _raises_another() -> None:
    raise ValueError("KeyboardInterrupt is a word")


def test_a_mesh_of_the_users_is_named_by_the_verbs_that_can_not_run_under_it() -> None:
    mirrored = strategy()
    value = mirrored.run(lambda: jnp.ones(2))
    mesh = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    with jax.set_mesh(mesh):
        for verb in (
            lambda: mirrored.run(lambda: jnp.ones(2)),
            lambda: mirrored.reduce("SUM", value, axis=None),
            lambda: mirrored.gather(value, axis=0),
        ):
            require_refusal(verb, ContextError, "under jax.set_mesh of a mesh with the axes rows")
    assert mirrored.reduce("SUM", value, axis=None).tolist() == [2.0, 2.0]


def test_where_jax_may_not_compile_functions_run_eagerly() -> None:
    mirrored = strategy()
    with jax.disable_jit():
        require_refusal(
            lambda: mirrored.run(lambda: jnp.ones(2)), ContextError, "jax.disable_jit forbids"
        )
        require_refusal(lambda: mirrored.run(lambda: jnp.ones(2)), ContextError, "JAX_DISABLE_JIT")
        eagerly = dl.RunOptions(run_eagerly=True)
        assert len(mirrored.run(lambda: jnp.ones(2), options=eagerly).values) == 2


def test_a_snapshot_is_that_of_its_own_pipeline(tmp_path: Path) -> None:
    def kept(dataset: dl.data.Dataset) -> list[int]:
        return [int(n) for n in dataset.snapshot(tmp_path)]

    numbers = dl.data.Dataset.range(3)
    for _ in range(2):
        assert kept(numbers.map(lambda x: x + 1)) == [1, 2, 3]
        assert len(list(tmp_path.glob("*.index"))) == 1
    for factor in (2, 3):
        assert kept(numbers.map(lambda x, factor=factor: x * factor)) == [0, factor, 2 * factor]
    assert kept(dl.data.Dataset.range(50, 53)) == [50, 51, 52]
    assert kept(numbers.shuffle(3).map(lambda x: x * 0)) == [0, 0, 0]


def test_a_step_leaks_no_tracers_of_distlabs_own() -> None:
    mirrored = strategy()
    with mirrored.scope():
        total = dl.Variable(jnp.zeros(2), aggregation=dl.VariableAggregation.MEAN)

    def step(x: Any) -> Any:
        both = dl.get_replica_context().all_reduce("SUM", x)
        total.assign_add(jnp.ones(2) * both)
        return both

    with jax.checking_leaks():
        assert [float(v) for v in mirrored.run(step, args=(2.0,)).values] == [4.0, 4.0]
    assert total.numpy().tolist() == [4.0, 4.0]


def test_an_axis_of_another_name_is_told_the_name_of_that_of_the_replicas() -> None:
    with pytest.raises(NameError, match="batch") as refused:
        strategy().run(lambda: jax.lax.pmean(jnp.ones(2), "batch"))
    assert "axis of the replicas is 'replica'" in "".join(refused.value.__notes__)


def _over(mesh: jax.sharding.Mesh) -> Callable[[Any], Any]:
    axis = mesh.axis_names[0]
    return jax.shard_map(lambda x: x + 1, mesh=mesh, in_specs=jax.P(axis), out_specs=jax.P(axis))


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("axis", ["data", "replica"])
def test_a_step_that_divides_its_work_over_other_devices_is_refused(
    replicas: int, size: int, axis: str
) -> None:
    mirrored = dl.MirroredStrategy(jax.devices()[:replicas])
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:size]), (axis,))
    sharding = jax.NamedSharding(mesh, jax.P(axis))
    divided: list[Callable[[Any], Any]] = [
        _over(mesh),
        jax.jit(_over(mesh)),
        jax.pmap(lambda x: x + 1),
        lambda x: jax.lax.scan(lambda c, _: (_over(mesh)(c), None), x, length=2)[0],
    ]
    if replicas > 1:
        divided += [
            lambda x: jax.lax.with_sharding_constraint(x, sharding),
            jax.jit(lambda x: x + 1, in_shardings=sharding),
        ]
    for step in divided:
        with pytest.raises(ContextError, match="run has divided it already") as refused:
            mirrored.run(step, args=(jnp.ones((size, 2)),))
        assert "Call the mapped function itself" in str(refused.value)


def test_a_mesh_of_one_device_divides_nothing() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    result = dl.OneDeviceStrategy("CPU:0").run(_over(mesh), args=(jnp.ones((2, 2)),))
    assert result.tolist() == [[2.0, 2.0], [2.0, 2.0]]


FULL: Final = """
import resource, signal
import distlab as dl
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
rows = dl.data.Dataset.range(1 << 16).batch(1 << 10)
def write_records():
    with dl.io.TFRecordWriter("records") as writer:
        for _ in range(3):
            writer.write(b"x" * (1 << 15))
for write in (lambda: rows.save("saved"), lambda: list(rows.cache("cached")), write_records):
    try:
        write()
    except OSError as error:
        print(*error.__notes__)
"""


def test_files_that_a_full_disk_does_not_take_are_named(tmp_path: Path) -> None:
    status, out = finish(f"import os\nos.chdir({str(tmp_path)!r})\n{FULL}")
    assert status == 0, out
    saved, cached, records = out.splitlines()  # and no error besides
    for line, name in ((saved, "saved"), (cached, "cached"), (records, "records")):
        assert name in line
        assert "could not be written whole. Free space on its disk" in line

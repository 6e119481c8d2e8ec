"""The schema of a run: one frozen struct for each kind of event.

Events are metadata only. They never hold an array, because an array that an
event keeps alive cannot be donated, and one that was donated cannot be read.

An event is dated by `time_ns`, the monotonic clock of its process in nanoseconds
(`time.monotonic_ns`); the `Run` event ties that clock to the wall clock. Sequence
number and process are not part of the struct but of its envelope: a ring or a run
file belongs to one process and numbers events as they arrive. Steps, strategies,
programs, datasets and arrays are numbered by each process for itself, too.

`SCHEMA` is stored in every run file. A kind that the reader does not know becomes
`Unknown`, so that newer files open in older versions.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SCHEMA = 3
"""The version of this schema, stored in each run file. Version 2 added the kinds `copy`,
`capture`, `advice`, `recorder` and `loop`, and fields with defaults to `Compile`, its collectives
and `Reduction`, so that files of version 1 open as they were. Version 3 added `index_bytes` to
`Sharding`, whose default is what earlier versions wrote; fields at their default are left out."""


_MOST_PARTS = 1 << 20
"""Parts of a batch on a mesh: a damaged file may state any."""

Buffer: TypeAlias = bytes
"""Bytes, by a name that an event with a field called `bytes` can use."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device, as the pages name it.

    Attributes:
      name: Short name such as `"CPU:0"`.
      kind: The platform's name for the hardware, such as `"cpu"` or `"NVIDIA H100"`.
      platform: JAX's platform name: `"cpu"`, `"gpu"` or `"tpu"`.
      simulated: True for CPU devices, which share the cores of one machine.
    """

    name: str
    kind: str
    platform: str
    simulated: bool


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective operation of an optimised program.

    Attributes:
      kind: `"all-reduce"`, `"all-gather"`, `"reduce-scatter"`, `"collective-permute"`,
        `"all-to-all"` or `"collective-broadcast"`.
      operand_bytes: Bytes of its operands on one device.
      dtype: Element types of the operands, joined by `+` when combined.
      operands: Number of arrays that XLA combined into it.
      participants: Number of devices that take part.
      times_per_step: Number of times that one execution of the program runs it
        (inside a scan: its trip count); None when the program does not state it.
      source: Operation and line of the user's program it stems from, as far as XLA
        kept them.
      wire_bytes: Bytes that one device sends when it runs once, by the algorithm
        that moves the fewest (a ring); None in runs recorded before this field.
      group: Number of devices that work together; equals `participants` when all do.
      values: Shapes and source lines of the operands that XLA combined, in their
        order.
      axes: The mesh axes along which the devices of a group differ; empty where the
        mesh is unknown, and in runs recorded before this field, as those below.
      shift: Of a permutation along one axis, the positions that each value moves on.
      asked: `"program"` where the program calls it, `"xla"` where the compiler inserted it.
      purpose: `"gradients"` or `"updates"` of states, `"whole"` or `"parts"` of inputs,
        `"numbers"`, `"activations"` or `"activations, backward"`.
      names: The states or inputs that the purpose concerns.
      then_sliced: Bytes of its results of which each device uses a slice of its own alone.
    """

    kind: str
    operand_bytes: int
    dtype: str
    operands: int
    participants: int
    times_per_step: int | None
    source: str
    wire_bytes: int | None = None
    group: int = 0
    values: list[str] = []
    axes: list[str] = []
    shift: int | None = None
    asked: str = ""
    purpose: str = ""
    names: list[str] = []
    then_sliced: int = 0


class ArrayPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An array that a program receives or returns, and how it lies on the mesh.

    Attributes:
      name: Its name in the program, such as `params['w']`.
      dtype: Its element type.
      shape: Its sizes.
      spec: The mesh axes that divide each dimension; None for a sharding without a mesh.
      bytes_per_device: Bytes that each device holds of it.
      donated: Whether the program may write its results over it.
      used: False for an argument that the compiler dropped.
    """

    name: str
    dtype: str
    shape: list[int]
    spec: list[list[str]] | None
    bytes_per_device: int
    donated: bool = False
    used: bool = True


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A trait of a program's trace that is right in few programs.

    Attributes:
      about: `"own_updates"` (each replica assigns its own value to its copy of a state),
        `"same_random"` (all replicas draw the same random numbers for different examples),
        `"same_work"` (nothing that the replicas receive differs), `"sum_of_means"` (gradients of
        each replica's mean loss are added up), `"mean_of_means"` (averaged, though the means are
        over different numbers of examples), `"sparse_gradient"` (of a table of which few rows
        were used) or `"repeated_sum"` (replicas combine in each round of a loop what nothing in
        the loop waits for).
      subject: The variable, argument or function concerned.
      because: The inputs that it follows from, joined by commas.
      source: File and line of the user's program, as far as JAX kept them.
      numbers: Names to the numbers behind it; names end in their unit.
    """

    about: str
    subject: str
    because: str
    source: str
    numbers: dict[str, float] = {}


class ProgramShare(msgspec.Struct, frozen=True, kw_only=True):
    """A program in a profile.

    Attributes:
      name: Name of its function as XLA has it: without `<`, `>` and the like.
      runs: How often it ran meanwhile, estimated from its operations.
      busy_ns: Nanoseconds in which each device ran its operations, waits in collectives included.
    """

    name: str
    runs: int
    busy_ns: list[int]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base of all events.

    Attributes:
      time_ns: Monotonic time in nanoseconds at which it happened.
    """

    STANDING: ClassVar[bool] = False
    """True for kinds that later events refer to: a ring keeps them for good, so
    that a recording that begins later still knows them."""

    MOMENTS: ClassVar[tuple[str, ...]] = ("time_ns",)
    """Fields that are times on the process's monotonic clock, or lists of such."""

    time_ns: int


class Run(Event, frozen=True, kw_only=True, tag="run"):
    """The first event of a recording: program, host and clocks.

    Attributes:
      name: The run's name, by default the name of its folder; without one, the
        name of the script, notebook or package.
      unix_ns: Wall clock in nanoseconds since 1970 at `time_ns`.
      process: Operating-system process number.
      host: Name of the machine.
      platform: JAX's default platform, empty before JAX starts its devices.
      devices: All devices of the process.
      versions: Package name to version, for Python, jax, jaxlib and distlab.
      total_steps: Steps that the run is meant to take, None when unknown.
      job: The process's job in its cluster, such as `"worker"`; empty without a cluster.
      task: Its number in that job.
      process_index: Its number among the processes that record the run.
      processes: Number of these processes.
      generation: Number of earlier starts of the cluster.
      clock_offset_ns: Nanoseconds to add to its clock to get that of process 0; events of the
        kind `clock_offset` have newer ones.
      clock_error_ns: The largest error of this offset; 0 where both read one clock.
      config: Settings that the program stated, by name; of a nest as `model.layers`.
      observe: `"steps"`, or `"programs"` where every program of JAX is part of the run, and calls
        of those that distlab does not run are not counted.
    """

    STANDING = True
    name: str
    unix_ns: int
    process: int
    host: str
    platform: str
    devices: list[Device]
    versions: dict[str, str]
    total_steps: int | None = None
    job: str = ""
    task: int = 0
    process_index: int = 0
    processes: int = 1
    generation: int = 0
    clock_offset_ns: int = 0
    clock_error_ns: int = 0
    config: dict[str, str | int | float | bool | None] = {}
    observe: Literal["steps", "programs"] = "steps"


class RunEnd(Event, frozen=True, kw_only=True, tag="run_end"):
    """The last event of a recording that was closed.

    Attributes:
      status: `"finished"`, `"stopped"` (its loops were, on a page), `"failed"` (an exception left
        the `with` block) or `"interrupted"` (Ctrl-C).
      message: The exception's text, empty when nothing was raised.
    """

    status: Literal["finished", "stopped", "failed", "interrupted"]
    message: str = ""


class ClockOffset(Event, frozen=True, kw_only=True, tag="clock_offset"):
    """The clock of a process on another machine was compared again with that of process 0.

    Attributes:
      offset_ns: Nanoseconds to add to its clock to get that of process 0, from here on.
      error_ns: The largest error of this offset.
    """

    offset_ns: int
    error_ns: int


class Strategy(Event, frozen=True, kw_only=True, tag="strategy"):
    """A strategy was made, or a function that is observed ran on a mesh for the first time.

    Attributes:
      strategy: Its number in this process.
      name: Class name, such as `"MirroredStrategy"`; of a mesh its axes, such as
        `"Mesh(data=4, model=2)"`.
      devices: Device name of each replica, in replica order; with several axes of each position,
        the last axis first.
      processes: The process of each of these; empty where all are
        in this process. Other events have the numbers of this process's replicas alone.
      source: File and line of the user's program that made it; empty in runs recorded before
        this field.
      form: `"strategy"`, or `"mesh"` of functions that `distlab.observe` returned: what other
        events say of replicas holds for the mesh's positions.
      axes: Sizes of the mesh's axes by name, in their order; empty for a strategy whose variables
        are whole on each device, and for a mesh without names, such as one device. Along a
        strategy's axis `"model"` lie the devices of one replica.
    """

    STANDING = True
    strategy: int
    name: str
    devices: list[str]
    processes: list[int] = []
    source: str = ""
    form: Literal["strategy", "mesh"] = "strategy"
    axes: dict[str, int] = {}

    @property
    def replicas(self) -> list[str]:
        """Names of the replicas: their devices', of several the first and last one's."""
        each = self.axes.get("model", 1) if self.form == "strategy" else 1
        if each < 2:
            return self.devices
        firsts, lasts = self.devices[::each], self.devices[each - 1 :: each]
        return [f"{first}-{last}" for first, last in zip(firsts, lasts, strict=False)]

    @property
    def kind(self) -> Literal["strategy", "mesh"]:
        """`form`: in a run file, the field `kind` names the event."""
        return self.form


class Placement(Event, frozen=True, kw_only=True, tag="placement"):
    """A variable was placed on devices, or its memory was freed.

    Attributes:
      strategy: Number of the strategy that placed it.
      array: Number of the placed array in this process; `free` repeats it.
      name: The variable's name.
      action: `"place"` or `"free"`.
      layout: `"replicated"` (a whole copy on each device), `"per_replica"`
        (each device its own), `"single"` (on one device) or `"divided"` (parts of one value, or
        of each replica's).
      shape: Shape of one copy; of a divided variable, of the whole.
      dtype: Element type.
      devices: Names of the devices that hold a copy.
      bytes_per_device: Bytes on each of `devices`, in the same order.
      server: Number of the parameter server that holds it; None without servers.
      source: File and line of the user's program that made it; empty in runs recorded before
        this field.
      spec: The axes of its strategy's mesh that divide each dimension; empty for whole copies.
    """

    STANDING = True
    strategy: int
    array: int
    name: str
    action: Literal["place", "free"]
    layout: Literal["replicated", "per_replica", "single", "divided"]
    shape: list[int]
    dtype: str
    devices: list[str]
    bytes_per_device: list[int]
    server: int | None = None
    source: str = ""
    spec: list[list[str]] = []


class Sharding(Event, frozen=True, kw_only=True, tag="sharding"):
    """A global batch was divided over the replicas and put on their devices.

    Attributes:
      strategy: Number of the strategy.
      dataset: Number of the distributed dataset in this process.
      batch: Number of the batch in this iteration of the dataset, from 0.
      epoch: Number of earlier iterations of the dataset.
      sizes: Examples of each replica; 0 for a replica left empty.
      nominal: Examples of a replica in a full batch.
      indices: Positions of the examples in the source, in the order in which
        they were divided: unsigned, little-endian. None when the source has no
        positions (a generator) or the batch holds more than 65,536 examples.
      bytes: Bytes of the whole batch.
      wait_ns: Nanoseconds spent waiting for the source's batch.
      transfer_ns: Nanoseconds the caller spent putting it on the devices.
      policy: How it was divided: `"rebatch"` or `"per_replica"`.
      source: File and line of the call that distributed the dataset; empty in runs
        recorded before this field.
      name: The dataset's `Options.dataset_name`, empty without one.
      repeated: Replicas whose examples are the first replica's again, of examples that differ
        among themselves and from batch to batch. Looked at in the first 4 batches of an epoch
        and in every 64th, else 0.
      mesh: Names of the mesh's axes to their sizes, where `distlab.shard_batches` placed it: then
        `sizes` is empty, and `nominal` the examples of each part. Empty for a strategy's batch,
        and in runs recorded before this field, as those below.
      spec: The mesh axes that divide each dimension of its largest array.
      shape: Sizes of that array.
      index_bytes: Bytes of each position in `indices`; 8 in runs recorded before this field.
    """

    strategy: int
    dataset: int
    batch: int
    epoch: int
    sizes: list[int]
    nominal: int
    indices: Buffer | None
    bytes: int
    wait_ns: int
    transfer_ns: int
    policy: Literal["rebatch", "per_replica"]
    source: str = ""
    name: str = ""
    repeated: int = 0
    mesh: dict[str, int] = {}
    spec: list[list[str]] = []
    shape: list[int] = []
    index_bytes: int = 8

    @property
    def positions(self) -> npt.NDArray[np.int64] | None:
        """Positions of the examples; None where `indices` is."""
        from distlab.events.positions import unpacked  # NumPy is loaded when it is used

        return None if self.indices is None else unpacked(self.indices, self.index_bytes)

    @property
    def parts(self) -> list[int]:
        """Examples of each replica; on a mesh of each part along the first dimension."""
        if not self.mesh:
            return self.sizes
        axes = self.spec[0] if self.spec else []
        count = math.prod(self.mesh.get(name, 1) for name in axes)
        return [self.nominal] * min(count, _MOST_PARTS)


class Preview(Event, frozen=True, kw_only=True, tag="preview"):
    """Thumbnails of some examples of a dataset.

    Each example of an indexed source is previewed once. Sources without
    positions are previewed for a sample of their batches; then `batch` is the
    batch, and `indices` counts within it.

    Attributes:
      dataset: Number of the distributed dataset.
      batch: None for an indexed source; otherwise the batch it belongs to.
      epoch: The iteration that `batch` belongs to.
      indices: Positions of the examples: int64, little-endian.
      form: `"image"` (uint8 pixels) or `"numbers"` (float32).
      shape: Shape of one preview: `[height, width]`, `[height, width, 3]`, or
        `[n]` for numbers.
      data: The previews one after another, C order.
      labels: Short label of each example, empty when there is none.
    """

    STANDING = True
    dataset: int
    batch: int | None
    epoch: int
    indices: bytes
    form: Literal["image", "numbers"]
    shape: list[int]
    data: bytes
    labels: list[str]


class Compile(Event, frozen=True, kw_only=True, tag="compile"):
    """A function was traced and compiled for one set of argument shapes.

    A function that runs eagerly has one such event, too, without any contents.

    Attributes:
      program: Number of the program in this process; steps refer to it.
      strategy: Number of the strategy.
      function: Qualified name of the function passed to `run`.
      cause: `"new function"`, `"new shapes"` or `"new structure"`; of an observed function also
        `"new sharding"`: nothing changed but the placement of an argument.
      changed: The argument that changed and how; of a function that is made anew for each call,
        what it refers to that changed. Empty for a new function.
      arguments: Each argument leaf as `name: dtype[shape]`, per replica; of an observed function
        whole, and with its placement: `x: float32[32, 8] P('data')`.
      mode: `"traced"` (one program for all replicas), `"ragged"` (replicas
        had different shapes: a program for each device between collectives) or
        `"eager"` (ordinary Python for each replica: nothing was compiled).
      trace_ns: Nanoseconds spent tracing Python.
      compile_ns: Nanoseconds spent in XLA.
      collectives: Every collective of the optimised program.
      flops: Floating-point operations of one execution on one device; None, here
        and below, when XLA does not report it.
      bytes_accessed: Bytes read and written by one execution on one device.
      temp_bytes: Scratch memory of one device.
      argument_bytes: Memory of the arguments on one device.
      output_bytes: Memory of the outputs on one device.
      peak_bytes: The most memory that one execution holds on one device at any
        time: arguments, outputs and scratch memory.
      source: File and line of the function's definition.
      assigned: Names of the variables that it assigns.
      doubts: What its trace shows that is right in few programs.
      trains: Whether it computes a gradient. True in runs recorded before this field.
      called: File and line of the user's program that called `run` first, or turned eager mode
        on; empty in runs recorded before this field.
      mesh: Names of the mesh's axes to their sizes; empty where it is unknown, and in runs
        recorded before this field, as those below.
      inputs: The arrays that the program receives.
      outputs: The arrays that it returns.
      devices: Number of devices that run it.
      computed_times: How often each operation is computed, on average: 1 where the devices divide
        all work; None where that is unknown.
    """

    STANDING = True
    program: int
    strategy: int
    function: str
    cause: str
    changed: str
    arguments: list[str]
    mode: Literal["traced", "ragged", "eager"]
    trace_ns: int
    compile_ns: int
    collectives: list[Collective]
    flops: float | None = None
    bytes_accessed: float | None = None
    temp_bytes: int | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    peak_bytes: int | None = None
    source: str = ""
    assigned: list[str] = []
    doubts: list[Doubt] = []
    trains: bool = True
    called: str = ""
    mesh: dict[str, int] = {}
    inputs: list[ArrayPlace] = []
    outputs: list[ArrayPlace] = []
    devices: int = 0
    computed_times: float | None = None


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """`run` dispatched a step to the devices; `time_ns` is when it was called.

    Attributes:
      step: Number of the step in this process, from 0.
      program: Number of the program that was executed.
      strategy: Number of the strategy.
      dispatched_ns: Monotonic time at which the step was dispatched. The
        devices work on after that: see `StepReady`. Of an eager step the time at
        which all replicas' Python had returned.
      examples: Examples in the step's batch, 0 when no argument came from a
        distributed dataset or `shard_batches`.
      awaited_ns: Nanoseconds between the thread's step before and this call in which it waited
        for results that it read, in programs of several processes; 0 in others.
    """

    MOMENTS = ("time_ns", "dispatched_ns")
    step: int
    program: int
    strategy: int
    dispatched_ns: int
    examples: int
    awaited_ns: int = 0


class CopiesCompared(Event, frozen=True, kw_only=True, tag="copies"):
    """The replicas' copies of a state were compared.

    Only copies that a program assigns on each replica by itself are compared: after steps 1, 2,
    4, 8 and so on of that program, and when somebody else has assigned them meanwhile.

    Attributes:
      step: Number of the last step before.
      strategy: Number of the strategy.
      program: Number of the program that assigns them.
      subject: The state, as the program's doubt names it.
      differing: Replicas whose copy differs from the first replica's.
      largest: The largest difference, as a share of the largest number of the first copy.
      source: File and line of the user's program that assigned it; empty where the program's
        doubt has them.
    """

    step: int
    strategy: int
    program: int
    subject: str
    differing: list[int]
    largest: float
    source: str = ""


class NotFinite(Event, frozen=True, kw_only=True, tag="not_finite"):
    """A result of a function is NaN or infinite in three of its steps in a row, or more.

    Reported once, and once more when it is finite again. Small results of floating-point numbers
    are looked at, such as a loss.

    Attributes:
      step: Number of the first of these steps; -1 where results are finite again.
      last_step: Number of the last one.
      strategy: Number of the strategy.
      function: Qualified name of the function.
      source: File and line of its definition.
      steps: How many of its steps it concerns.
      replicas: Replicas on which a result of the first of these steps is not finite.
      begun: Whether the function's step before was seen, and its results were finite.
      arguments: Replicas that had NaN or infinity in an argument of a later step, where others
        had none.
    """

    step: int
    last_step: int
    strategy: int
    function: str
    source: str
    steps: int
    replicas: list[int]
    begun: bool
    arguments: list[int] = []


class StepReady(Event, frozen=True, kw_only=True, tag="step_ready"):
    """A step's results were ready. Not every step is watched.

    Attributes:
      step: Number of the step.
      strategy: Number of the strategy.
      ready_ns: Monotonic time at which each replica's result was ready, in
        replica order; 0 where it is not known.
      resolution_ns: The largest delay of these times.
    """

    MOMENTS = ("time_ns", "ready_ns")
    step: int
    strategy: int
    ready_ns: list[int]
    resolution_ns: int


class OwnPython(Event, frozen=True, kw_only=True, tag="own_python"):
    """The lines of the program's own Python while no step was in flight; `time_ns` is its end.

    A stack has the program's lines alone, outermost first, as `train.py:90 > train.py:34`; one
    that ends with `jax compiles` was inside of JAX's compiler.

    Attributes:
      start_ns: Monotonic time at which the period begins.
      stacks: Stacks to nanoseconds, estimated from samples by the thread that watches the
        devices. The 20 longest.
      calls: The stacks at which `run` is called, some of them.
    """

    MOMENTS = ("time_ns", "start_ns")
    COMPILES: ClassVar[str] = "jax compiles"
    start_ns: int
    stacks: dict[str, int]
    calls: list[str]


class Reduction(Event, frozen=True, kw_only=True, tag="reduction"):
    """Values of the replicas were combined from Python, outside of a program.

    Attributes:
      strategy: Number of the strategy.
      verb: The method called: `"reduce"`, `"gather"`, or `"all_reduce"` by a replica
        function that runs eagerly.
      op: `"SUM"` or `"MEAN"`, empty for a gather.
      algorithm: How the data moved: `"to_one_device"`, `"hierarchical_copy"` or
        `"all_reduce"`.
      bytes: Bytes of the value on one replica.
      dtype: Element type.
      participants: Number of replicas that took part.
      duration_ns: Nanoseconds the caller spent in the call; of several values that were
        reduced together, each has the share of the time that it has of the bytes.
      array: Number of the value in this process, the same at each reduction of
        it; -1 in runs recorded before this field.
      call: Number of the call, shared by the values of one structure; -1 in runs
        recorded before this field.
      source: File and line of the user's program that made the call; empty in runs recorded
        before this field.
    """

    strategy: int
    verb: str
    op: str
    algorithm: str
    bytes: int
    dtype: str
    participants: int
    duration_ns: int
    array: int = -1
    call: int = -1
    source: str = ""


class Copy(Event, frozen=True, kw_only=True, tag="copy"):
    """Data moved between host and devices, or between devices, outside of the input pipeline.

    Attributes:
      strategy: Number of the strategy.
      what: The value copied, such as `"argument x of step"` or a variable's name.
      direction: `"to_devices"` (from the host), `"to_host"` or
        `"between_devices"`.
      bytes: Bytes of the value, counted once.
      copies: Number of devices that received it, or sent it.
      duration_ns: Nanoseconds the caller spent; towards the host this includes
        the wait for the value.
      waiting_ns: Nanoseconds of those in which the caller waited for the devices to compute the
        value; -1 in runs recorded before this field.
      source: File and line of the user's program that made it necessary; empty in runs recorded
        before this field.
    """

    strategy: int
    what: str
    direction: Literal["to_devices", "to_host", "between_devices"]
    bytes: int
    copies: int
    duration_ns: int
    waiting_ns: int = -1
    source: str = ""


class Capture(Event, frozen=True, kw_only=True, tag="capture"):
    """A short profile of the devices; `time_ns` is its end.

    Lists are in the order of `devices`. Each moment counts once: as computing, else
    as copying, else as waiting, else as idle.

    Attributes:
      strategy: Number of the strategy whose steps were captured.
      start_ns: Monotonic time at which it began.
      steps: Number of steps dispatched meanwhile; 0 of a profile of whatever ran, without steps.
      asked_by: `"user"`, or `"recorder"` for the short captures that a recording
        takes by itself.
      devices: Device names.
      compute_ns: Nanoseconds in which the device ran operations.
      waiting_ns: Nanoseconds in which it waited for others in a collective.
      copy_ns: Nanoseconds in which it did nothing but copy.
      idle_ns: The rest.
      spans: Spans of each device, oldest first: begin and length in
        nanoseconds after `start_ns` and activity (0 compute, 1 waiting, 2 copy),
        as int64, little-endian. Neighbours of one activity closer than 1 us are one.
      spans_left_out: Spans beyond the 4,096 kept for each device.
      profile_bytes: Size of the profile it was read from.
      cost_ns: Nanoseconds spent on taking and reading it, off the hot path.
      first_step: Number of the step at which it began, -1 where it is not known. The
        processes of a run begin the recorder's captures at the same step.
      work_ns: The work of one step on each device: how often it ran each operation, times the
        lower quartile of the operation's durations on all devices, or its shortest on this one
        where that is longer, in nanoseconds. Devices that share cores are compared by it. Empty
        where it is not known.
      work_steps: The whole steps from which `work_ns` is known.
      programs: The 20 programs that took most of the time, the longest first; empty on GPUs and
        TPUs, and in runs recorded before this field.
    """

    MOMENTS = ("time_ns", "start_ns")
    strategy: int
    start_ns: int
    steps: int
    asked_by: Literal["user", "recorder"]
    devices: list[str]
    compute_ns: list[int]
    waiting_ns: list[int]
    copy_ns: list[int]
    idle_ns: list[int]
    spans: list[Buffer]
    spans_left_out: int
    profile_bytes: int
    cost_ns: int
    first_step: int = -1
    work_ns: list[int] = []
    work_steps: int = 0
    programs: list[ProgramShare] = []


class Advice(Event, frozen=True, kw_only=True, tag="advice"):
    """A possible improvement, found by `distlab.advice`.

    Attributes:
      cause: The problem, one of `distlab.advice.CAUSES`.
      subject: The device, replica, argument or variable concerned, such as
        `"replica 3"`.
      text: One sentence that states the observation.
      remedy: One sentence that states what to do.
      evidence: Names to the numbers behind it; names end in their unit.
      steps: First and last step concerned, empty when there is none.
      page: The chart that shows it, by its name in the dashboard.
      share: The share of the time, or of the devices' work, that it costs; 0 to 1.
      source: File and line of the user's program to change, as far as it is known.
      saves_s: Seconds a step that the remedy saves at most; 0 where that is not known.
    """

    cause: str
    subject: str
    text: str
    remedy: str
    evidence: dict[str, float]
    steps: list[int]
    page: str
    share: float
    source: str = ""
    saves_s: float = 0.0


class RecorderCost(Event, frozen=True, kw_only=True, tag="recorder"):
    """The cost of recording itself since the last event of this kind.

    Attributes:
      start_ns: Monotonic time at which the period begins; `time_ns` is its end.
      events: Number of events recorded.
      emit_ns: Nanoseconds the callers spent on emitting events other than `metric`, estimated
        from a sample of them.
      sampled: Number of events that were timed.
      writer_ns: Processor time of the threads that write the run file and call loggers.
      watcher_ns: Processor time of the thread that watches the devices.
      capture_ns: Processor time spent on taking and reading profiles.
      waiting: Events not stored yet.
      lost: Events lost so far.
      log_ns: Nanoseconds the callers spent in calls of `log`, all of which are timed; 0 in runs
        recorded before this field.
      log_source: File and line of the user's program whose calls of `log` took the most of that;
        empty without calls and in runs recorded before this field.
    """

    MOMENTS = ("time_ns", "start_ns")
    start_ns: int
    events: int
    emit_ns: int
    sampled: int
    writer_ns: int
    watcher_ns: int
    capture_ns: int
    waiting: int
    lost: int
    log_ns: int = 0
    log_source: str = ""


class Metric(Event, frozen=True, kw_only=True, tag="metric"):
    """Numbers that the user logged; `time_ns` is when `log` was called.

    Attributes:
      step: The step they belong to, by default the last one dispatched; -1 before
        the first.
      values: Name to value.
    """

    step: int
    values: dict[str, float]


class DeviceSample(Event, frozen=True, kw_only=True, tag="device_sample"):
    """The busy time of each device of a strategy in a watched window.

    Attributes:
      strategy: Number of the strategy; lists are in its replica order.
      start_ns: Monotonic time at which the window began; `time_ns` is its end.
      busy_ns: Nanoseconds in the window during which the device had a
        dispatched step that was not finished. Waiting for other devices in a
        collective counts as busy.
      memory_bytes: Allocator memory in use on each device, None where the
        platform does not report it (CPU).
      process_memory_bytes: Resident memory of the whole process.
      basis: Source of `busy_ns`: `"ready"`, the times at which results
        were ready, or `"profile"`, those times cut by the duration of this
        device's steps in the last profile. (CPU devices share threads: a step
        may wait for one, and would count as busy.)
      used_bytes: Memory in use on each GPU by all processes, from NVML;
        None where it is not available (other platforms, or `nvidia-ml-py` is missing).
      utilization: Share of NVML's last sampling period in which a kernel ran on
        each GPU, 0 to 1; None where NVML is not available.
    """

    MOMENTS = ("time_ns", "start_ns")
    strategy: int
    start_ns: int
    busy_ns: list[int]
    memory_bytes: list[int] | None
    process_memory_bytes: int
    basis: Literal["ready", "profile"] = "ready"
    used_bytes: list[int] | None = None
    utilization: list[float] | None = None


class Loop(Event, frozen=True, kw_only=True, tag="loop"):
    """A controlled loop began, ended, paused or resumed.

    Attributes:
      loop: Number of the loop in this process, from 0.
      name: Name passed to `controlled`.
      state: `"running"`, `"paused"`, `"stopped"` from outside, or `"done"` at its
        own end.
      position: Number of elements yielded so far.
    """

    loop: int
    name: str
    state: Literal["running", "paused", "stopped", "done"]
    position: int


class ClosureSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a scheduled function that ended.

    Attributes:
      worker: Number of the worker.
      function: Name of the function.
      waited_ns: Nanoseconds from `schedule` to the begin of this run.
      begin_ns: When it began, in nanoseconds after the event's `start_ns`; negative before it.
      took_ns: Nanoseconds until it ended.
      outcome: `"done"`, `"failed"` (it raised an error) or `"retried"` (its worker was lost, and
        it went back to the queue).
    """

    worker: int
    function: str
    waited_ns: int
    begin_ns: int
    took_ns: int
    outcome: Literal["done", "failed", "retried"]


class WorkerClosures(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one worker of a coordinator in a period.

    Attributes:
      worker: Its number; -1 where functions fail without a worker, as a parameter server is lost.
      begun: Scheduled functions that it was given, less those that it gave back.
      done: Those that returned.
      failed: Those that raised an error.
      retried: Those that went back to the queue, as the worker was lost.
      busy_ns: Nanoseconds in which it had one.
      running: Name of the function that it had at the end of the period, empty for none.
      queued: Functions that had been sent to it by then, and waited there for the one that it had;
        0 for workers that are threads, which take one at a time. None in files of older versions.
    """

    worker: int
    begun: int
    done: int
    failed: int
    retried: int
    busy_ns: int
    running: str
    queued: int | None = None


class ServerLink(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic between one worker and one parameter server in a period.

    Workers send their figures with the answers that they send anyway, so those of a function that
    still runs, or of a worker that was lost, are missing.

    Attributes:
      worker: Number of the worker.
      server: Number of the parameter server.
      reads: Values of variables that the worker received.
      read_bytes: Bytes of these values.
      changes: Changes of variables that it sent.
      change_bytes: Bytes of their operands; of workers that are threads, of a compiled step's new
        values.
      used: Changes of variables that the same function had read before.
      behind: Sum over these of the changes that others had made since the read.
      most_behind: The largest of these numbers.
      read_messages: Messages by which the worker asked for values; one may ask for many. 0 for
        workers that are threads, which send none. None in files of older versions.
      change_messages: Messages by which it sent changes, likewise.
    """

    worker: int
    server: int
    reads: int
    read_bytes: int
    changes: int
    change_bytes: int
    used: int
    behind: int
    most_behind: int
    read_messages: int | None = None
    change_messages: int | None = None


class Closures(Event, frozen=True, kw_only=True, tag="closures"):
    """The work of a coordinator and its workers in a period; `time_ns` is its end.

    There is one each 0.25 s in which functions are scheduled, begin or end, one each second in
    which functions only run, and none while all is idle. The sums are exact.

    Attributes:
      strategy: Number of the strategy.
      start_ns: Monotonic time at which the period begins.
      processes: Whether the workers are other processes; else they are threads.
      workers: Number of workers.
      servers: Number of parameter servers.
      scheduled: Functions that were scheduled.
      cancelled: Functions that an earlier one's error cancelled before they began.
      waiting: Functions in the queue at the end.
      active: What the workers did, without those that did nothing.
      links: What went between workers and parameter servers.
      functions: Names of the functions that returned or failed to how many; beyond 20 names they
        count under an empty one. In files of older versions those that were retried count, too.
      spans: Some of the functions that ended: the first ones of each worker, at most 64 in all or
        one a worker.
      spans_left_out: How many others ended.
    """

    MOMENTS = ("time_ns", "start_ns")
    strategy: int
    start_ns: int
    processes: bool
    workers: int
    servers: int
    scheduled: int
    cancelled: int
    waiting: int
    active: list[WorkerClosures]
    links: list[ServerLink]
    functions: dict[str, int]
    spans: list[ClosureSpan]
    spans_left_out: int


class TaskState(Event, frozen=True, kw_only=True, tag="task"):
    """A worker or a parameter server in another process was lost, or came back.

    Attributes:
      strategy: Number of the strategy.
      job: `"worker"` or `"ps"`.
      task: Its number in the job.
      state: `"lost"` or `"returned"`.
      reason: Why it was lost, as far as that is known, such as `"connection closed"`, `"no
        heartbeat for 25 s"`, `"process ended by SIGKILL"` or `"process ended with exit code 3"`.
        How a process ended is known of those that `dl.launch` started. Empty for one that came
        back, and in files of older versions.
    """

    strategy: int
    job: Literal["worker", "ps"]
    task: int
    state: Literal["lost", "returned"]
    reason: str = ""


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """An exception reached the caller of a distlab verb.

    Attributes:
      where: The verb, such as `"run"` or `"reduce"`; the name of an observed function that was
        called.
      type: Class name of the exception.
      message: Its text, cut at 2,000 characters.
    """

    where: str
    type: str
    message: str


class Lost(Event, frozen=True, kw_only=True, tag="lost"):
    """Events were not recorded, or can't be read.

    Attributes:
      count: Number of events.
      reason: The reason, in one sentence.
    """

    count: int
    reason: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind that this version does not know, kept as it was stored.

    Attributes:
      time_ns: Monotonic time in nanoseconds.
      kind: The kind's name.
      fields: All other fields.
    """

    time_ns: int
    kind: str
    fields: dict[str, Any]


if TYPE_CHECKING:
    AnyEvent: TypeAlias = Event
else:
    AnyEvent = functools.reduce(operator.or_, Event.__subclasses__())
"""Every kind that this version writes: those above."""


def kind_of(event: Event | Unknown) -> str:
    """Returns the kind's name as run files spell it, such as `"step_ready"`."""
    return event.kind if isinstance(event, Unknown) else _KINDS[type(event)]


_KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in Event.__subclasses__()}

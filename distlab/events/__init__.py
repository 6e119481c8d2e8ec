"""What distlab says about a run: one frozen struct for each kind of event.

Events are metadata only. They never hold an array, because an array that an
event keeps alive cannot be donated, and one that was donated cannot be read.

An event says *when* with `time_ns`, the monotonic clock of its process in
nanoseconds (`time.monotonic_ns`); the `Run` event ties that clock to the wall
clock. Sequence number and process are not part of the struct: a ring or a run
file numbers events as they arrive, and keeps one file for each process.

`SCHEMA` is stored in every run file. A reader that meets a kind it does not
know gives it back as `Unknown`, so that newer files open in older versions.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, get_args

import msgspec

SCHEMA = 2
"""The version of this schema, stored in each run file. Version 2 added the kinds `copy`,
`capture`, `advice`, `recorder` and `loop`, and fields with defaults to `Compile`, its collectives
and `Reduction`, so that files of version 1 open as they were."""


Buffer: TypeAlias = bytes
"""Bytes, by a name that an event with a field called `bytes` can use."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the pages name it.

    Attributes:
      name: short name such as `"CPU:0"`.
      kind: what the platform calls the hardware, such as `"cpu"` or `"NVIDIA H100"`.
      platform: JAX's platform name: `"cpu"`, `"gpu"` or `"tpu"`.
      simulated: true for CPU devices, which share the cores of one machine.
    """

    name: str
    kind: str
    platform: str
    simulated: bool


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective operation found in an optimised program.

    Attributes:
      kind: `"all-reduce"`, `"all-gather"`, `"reduce-scatter"`,
        `"collective-permute"` or `"all-to-all"`.
      operand_bytes: bytes of its operands on one device.
      dtype: element types of the operands, joined by `+` when combined.
      operands: how many arrays XLA combined into it.
      participants: how many devices take part.
      times_per_step: how often one execution of the program runs it (inside a
        scan: its trip count); None when the program does not say.
      source: where in the user's program it comes from, as far as XLA kept it.
      wire_bytes: bytes that one device sends when it runs once, by the algorithm
        that moves the fewest (a ring); None for runs recorded before this was
        known.
      group: devices that work together; `participants` when all do.
      values: what the user knows of what XLA combined here, such as the shapes
        and source lines of the operands, in their order.
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


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events.

    Attributes:
      time_ns: monotonic time in nanoseconds at which it happened.
    """

    STANDING: ClassVar[bool] = False
    """True for kinds that later events refer to: a ring keeps them for good, so
    that a recording that begins later still knows them."""

    time_ns: int


class Run(Event, frozen=True, kw_only=True, tag="run"):
    """The first event of a recording: what ran, where, and which clocks.

    Attributes:
      name: the run's name, by default the name of its folder.
      unix_ns: wall clock in nanoseconds since 1970 at `time_ns`.
      process: operating-system process number.
      host: name of the machine.
      platform: JAX's default platform.
      devices: all devices of the process.
      versions: package name to version, for Python, jax, jaxlib and distlab.
      total_steps: steps the run means to take, None when it did not say.
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


class RunEnd(Event, frozen=True, kw_only=True, tag="run_end"):
    """The last event of a recording that was closed.

    Attributes:
      status: `"finished"`, `"failed"` (an exception left the `with` block) or
        `"interrupted"` (Ctrl-C).
      message: what was raised, empty when nothing was.
    """

    status: Literal["finished", "failed", "interrupted"]
    message: str = ""


class Strategy(Event, frozen=True, kw_only=True, tag="strategy"):
    """A strategy was made.

    Attributes:
      strategy: its number in this process.
      name: class name, such as `"MirroredStrategy"`.
      devices: device name of each replica, in replica order.
    """

    STANDING = True
    strategy: int
    name: str
    devices: list[str]


class Placement(Event, frozen=True, kw_only=True, tag="placement"):
    """A variable was placed on devices, or its memory was given back.

    Attributes:
      strategy: number of the strategy that placed it.
      array: number of the placed array in this process; `free` names it again.
      name: the variable's name.
      action: `"place"` or `"free"`.
      layout: `"replicated"` (a whole copy on each device), `"per_replica"`
        (each device its own) or `"single"` (on one device).
      shape: shape of one copy.
      dtype: element type.
      devices: device names that hold a copy.
      bytes_per_device: bytes on each of `devices`, in the same order.
    """

    STANDING = True
    strategy: int
    array: int
    name: str
    action: Literal["place", "free"]
    layout: Literal["replicated", "per_replica", "single"]
    shape: list[int]
    dtype: str
    devices: list[str]
    bytes_per_device: list[int]


class Sharding(Event, frozen=True, kw_only=True, tag="sharding"):
    """A global batch was divided over the replicas and put on their devices.

    Attributes:
      strategy: number of the strategy.
      dataset: number of the distributed dataset in this process.
      batch: which batch of this dataset's iteration it is, from 0.
      epoch: how often the dataset was iterated before, from 0.
      sizes: examples given to each replica; 0 for a replica left empty.
      nominal: examples a replica gets from a full batch.
      indices: positions of the examples in the source, in the order in which
        they were divided: int64, little-endian. None when the source has no
        positions (a generator) or the batch holds more than 65,536 examples.
      bytes: bytes of the whole batch.
      wait_ns: nanoseconds waited for the source to give the batch.
      transfer_ns: nanoseconds the caller spent putting it on the devices.
      policy: how it was divided: `"rebatch"` or `"per_replica"`.
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
    policy: str


class Preview(Event, frozen=True, kw_only=True, tag="preview"):
    """What some examples of a dataset look like, small enough to keep.

    Each example of an indexed source is previewed once. Sources without
    positions are previewed for a sample of their batches; `batch` then says
    which one, and `indices` counts within that batch.

    Attributes:
      dataset: number of the distributed dataset.
      batch: None for an indexed source; otherwise the batch it belongs to.
      epoch: the iteration that `batch` belongs to.
      indices: positions of the examples: int64, little-endian.
      form: `"image"` (uint8 pixels) or `"numbers"` (float32).
      shape: shape of one preview: `[height, width]`, `[height, width, 3]`, or
        `[n]` for numbers.
      data: the previews one after another, C order.
      labels: short label of each example, empty when there is none.
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

    Attributes:
      program: number of the program in this process; steps refer to it.
      strategy: number of the strategy.
      function: qualified name of the function given to `run`.
      cause: `"new function"`, `"new shapes"` or `"new structure"`.
      changed: which argument changed and how, empty for a new function.
      arguments: each argument leaf as `name: dtype[shape]`, per replica.
      mode: `"traced"` (one program for all replicas) or `"ragged"` (replicas
        had different shapes: pieces for each device between collectives).
      trace_ns: nanoseconds spent tracing Python.
      compile_ns: nanoseconds spent in XLA.
      collectives: every collective of the optimised program.
      flops: floating-point operations of one execution on one device, None
        when XLA does not say.
      bytes_accessed: bytes read and written by one execution on one device.
      temp_bytes: scratch memory of one device.
      argument_bytes: memory of the arguments on one device.
      output_bytes: memory of the outputs on one device.
      peak_bytes: the most memory that one execution holds on one device at any
        time: arguments, outputs and scratch memory.
      source: file and line where the function is defined.
    """

    STANDING = True
    program: int
    strategy: int
    function: str
    cause: str
    changed: str
    arguments: list[str]
    mode: Literal["traced", "ragged"]
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


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """`run` handed a step to the devices; `time_ns` is when it was called.

    Attributes:
      step: number of the step in this process, from 0.
      program: the compiled program that was executed.
      strategy: number of the strategy.
      dispatched_ns: monotonic time at which `run` had handed it over. The
        devices work on after that: see `StepReady`.
      examples: examples in the batch that was given, 0 when no argument came
        from a distributed dataset.
    """

    step: int
    program: int
    strategy: int
    dispatched_ns: int
    examples: int


class StepReady(Event, frozen=True, kw_only=True, tag="step_ready"):
    """A watched step's results were ready. Not every step is watched.

    Attributes:
      step: the step.
      strategy: number of the strategy.
      ready_ns: monotonic time at which each replica's result was ready, in
        replica order.
      resolution_ns: how late these times can be, at most.
    """

    step: int
    strategy: int
    ready_ns: list[int]
    resolution_ns: int


class Reduction(Event, frozen=True, kw_only=True, tag="reduction"):
    """Values of the replicas were combined from Python, outside of a program.

    Attributes:
      strategy: number of the strategy.
      verb: what was called: `"reduce"` or `"gather"`.
      op: `"SUM"` or `"MEAN"`, empty for a gather.
      algorithm: how the data moved: `"to_one_device"` or `"all_reduce"`.
      bytes: bytes of the value on one replica.
      dtype: element type.
      participants: how many replicas took part.
      duration_ns: nanoseconds the caller spent in the call.
      array: number of the value in this process: the same one has the same number
        each time; -1 for runs recorded before this was known.
      call: number of the call: the values of one structure that was reduced share
        it; -1 as above.
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


class Copy(Event, frozen=True, kw_only=True, tag="copy"):
    """Data moved outside of the dataset's input: between host and devices, or devices.

    Attributes:
      strategy: number of the strategy.
      what: what was copied, such as `"argument x of step"` or a variable's name.
      direction: `"to_devices"` (from the host), `"to_host"` or
        `"between_devices"`.
      bytes: bytes of the value, once.
      copies: how many devices got it, or gave it.
      duration_ns: nanoseconds the caller spent; for `"to_host"` this includes
        the wait for the value.
    """

    strategy: int
    what: str
    direction: Literal["to_devices", "to_host", "between_devices"]
    bytes: int
    copies: int
    duration_ns: int


class Capture(Event, frozen=True, kw_only=True, tag="capture"):
    """A short profile of the devices; `time_ns` is its end.

    Lists are in the order of `devices`. A moment counts once, for the first of
    computing, copying, waiting and idle that was the case.

    Attributes:
      strategy: number of the strategy whose steps were captured.
      start_ns: monotonic time at which it began.
      steps: how many steps were handed over meanwhile.
      asked_by: `"user"`, or `"recorder"` for the short ones it takes by itself.
      devices: device names.
      compute_ns: nanoseconds in which the device ran operations.
      waiting_ns: nanoseconds in which it waited for others in a collective.
      copy_ns: nanoseconds in which it did nothing but copy.
      idle_ns: the rest.
      spans: for each device its spans, oldest first: begin and length in
        nanoseconds after `start_ns` and what (0 compute, 1 waiting, 2 copy),
        as int64, little-endian. Neighbours of one sort closer than 1 us are one.
      spans_left_out: spans beyond the 4,096 kept for each device.
      profile_bytes: size of the profile it was read from.
      cost_ns: nanoseconds spent on taking and reading it, off the hot path.
    """

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


class Advice(Event, frozen=True, kw_only=True, tag="advice"):
    """Something that could be better, found by `distlab.advice`.

    Attributes:
      cause: what is wrong, one of `distlab.advice.CAUSES`.
      subject: who or what it is about, such as `"replica 3"` or an argument.
      text: one sentence that says what was seen.
      remedy: one sentence that says what to do.
      evidence: names to the numbers behind it; names end in their unit.
      steps: first and last step it was seen in, empty when it has none.
      page: the chart that shows it, as the dashboard's pages are named.
      share: the part of the time, or of the devices' work, that it costs; 0 to 1.
    """

    cause: str
    subject: str
    text: str
    remedy: str
    evidence: dict[str, float]
    steps: list[int]
    page: str
    share: float


class RecorderCost(Event, frozen=True, kw_only=True, tag="recorder"):
    """What recording itself cost since the last event of this kind.

    Attributes:
      start_ns: monotonic time at which the account begins; `time_ns` is its end.
      events: events that were taken.
      emit_ns: nanoseconds the callers spent on handing over events, estimated
        from a sample of them.
      sampled: how many of the events were timed.
      writer_ns: processor time of the thread that writes the run file.
      watcher_ns: processor time of the thread that watches the devices.
      capture_ns: processor time spent on taking and reading profiles.
      waiting: events not stored yet.
      lost: events lost up to now.
    """

    start_ns: int
    events: int
    emit_ns: int
    sampled: int
    writer_ns: int
    watcher_ns: int
    capture_ns: int
    waiting: int
    lost: int


class Metric(Event, frozen=True, kw_only=True, tag="metric"):
    """Numbers the user logged; `time_ns` is when `log` was called.

    Attributes:
      step: the last step that had been dispatched then; -1 before the first.
      values: name to value.
    """

    step: int
    values: dict[str, float]


class DeviceSample(Event, frozen=True, kw_only=True, tag="device_sample"):
    """How busy each device of a strategy was during a watched window.

    Attributes:
      strategy: number of the strategy; lists are in its replica order.
      start_ns: monotonic time at which the window began; `time_ns` is its end.
      busy_ns: nanoseconds in the window during which the device had a step
        that was handed to it and not finished. Waiting for other devices in a
        collective counts as busy.
      basis: where `busy_ns` comes from: `"ready"`, the times at which results
        were ready, or `"profile"`, where they were cut by how long the steps of
        this device take in the last profile. (CPU devices share threads: a step
        may wait for one, and would count as busy.)
      memory_bytes: allocator memory in use on each device, None when the
        platform does not tell (CPU).
      process_memory_bytes: resident memory of the whole process.
      used_bytes: memory in use on each GPU by all processes, as NVML says it;
        None where it does not (other platforms, or `nvidia-ml-py` is missing).
      utilization: share of NVML's last sampling period in which a kernel ran on
        each GPU, 0 to 1; None as above.
    """

    strategy: int
    start_ns: int
    busy_ns: list[int]
    memory_bytes: list[int] | None
    process_memory_bytes: int
    basis: Literal["ready", "profile"] = "ready"
    used_bytes: list[int] | None = None
    utilization: list[float] | None = None


class Loop(Event, frozen=True, kw_only=True, tag="loop"):
    """A loop that can be controlled began, ended, paused or went on.

    Attributes:
      loop: number of the loop in this process, from 0.
      name: what it calls itself.
      state: `"running"`, `"paused"`, `"stopped"` by someone, or `"done"` by itself.
      position: elements that were handed to it so far.
    """

    loop: int
    name: str
    state: str
    position: int


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """An exception reached the caller of a distlab verb.

    Attributes:
      where: the verb, such as `"run"` or `"reduce"`.
      type: class name of the exception.
      message: its text, cut at 2,000 characters.
    """

    where: str
    type: str
    message: str


class Lost(Event, frozen=True, kw_only=True, tag="lost"):
    """Something was not recorded.

    Attributes:
      count: how many events.
      reason: why, in one sentence.
    """

    count: int
    reason: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind this version does not know, kept as it was.

    Attributes:
      time_ns: monotonic time in nanoseconds.
      kind: the kind's name.
      fields: all other fields.
    """

    time_ns: int
    kind: str
    fields: dict[str, Any]


AnyEvent: TypeAlias = (
    Run
    | RunEnd
    | Strategy
    | Placement
    | Sharding
    | Preview
    | Compile
    | Step
    | StepReady
    | Reduction
    | Copy
    | Capture
    | Advice
    | RecorderCost
    | Metric
    | DeviceSample
    | Loop
    | Error
    | Lost
)
"""Every kind this version writes."""


def kind_of(event: Event | Unknown) -> str:
    """Returns the kind's name as run files spell it, such as `"step_ready"`."""
    return event.kind if isinstance(event, Unknown) else _KINDS[type(event)]


_KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}


class Chunk(NamedTuple):
    """Events that a `Source` gave.

    Attributes:
      events: the events, oldest first.
      cursor: what to ask `since` for next.
      lost: events between the cursor asked for and the first one given that
        are gone for good (a ring that overflowed); 0 for run files.
    """

    events: list[Event | Unknown]
    cursor: int
    lost: int


class Source(Protocol):
    """Where folds get events from: a ring, a run file, or several of them.

    A cursor is a sequence number, never a clock. Cursor 0 begins with the
    standing events that are still known and goes on with the oldest others.
    """

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits)."""

"""The kinds of events that distlab records about a run, and the means to read them.

Example:
  >>> import distlab as dl
  >>> from distlab.events import Chunk, Metric
  >>> class Losses:
  ...     "A source of events: anything with `since`."
  ...     events = [Metric(time_ns=n, step=n, values={"loss": 1 / (n + 1)}) for n in range(3)]
  ...
  ...     def since(self, cursor: int, limit: int = 10_000) -> Chunk:
  ...         found = self.events[cursor : cursor + limit]
  ...         return Chunk(found, cursor + len(found), 0)
  >>> chunk = Losses().since(1)
  >>> [event.values["loss"] for event in chunk.events], chunk.cursor
  ([0.5, 0.3333333333333333], 3)
"""

from distlab.events.kinds import (
    SCHEMA,
    Advice,
    AnyEvent,
    ArrayPlace,
    Buffer,
    Capture,
    ClockOffset,
    Closures,
    ClosureSpan,
    Collective,
    Compile,
    CopiesCompared,
    Copy,
    Device,
    DeviceSample,
    Doubt,
    Error,
    Event,
    Loop,
    Lost,
    Metric,
    NotFinite,
    OwnPython,
    Placement,
    Preview,
    ProgramShare,
    RecorderCost,
    Reduction,
    Run,
    RunEnd,
    ServerLink,
    Sharding,
    Step,
    StepReady,
    Strategy,
    TaskState,
    Unknown,
    WorkerClosures,
    kind_of,
)
from distlab.events.source import Chunk, Envelope, Source, TimedSource

__all__ = [
    "SCHEMA",
    "Advice",
    "AnyEvent",
    "ArrayPlace",
    "Buffer",
    "Capture",
    "Chunk",
    "ClockOffset",
    "ClosureSpan",
    "Closures",
    "Collective",
    "Compile",
    "CopiesCompared",
    "Copy",
    "Device",
    "DeviceSample",
    "Doubt",
    "Envelope",
    "Error",
    "Event",
    "Loop",
    "Lost",
    "Metric",
    "NotFinite",
    "OwnPython",
    "Placement",
    "Preview",
    "ProgramShare",
    "RecorderCost",
    "Reduction",
    "Run",
    "RunEnd",
    "ServerLink",
    "Sharding",
    "Source",
    "Step",
    "StepReady",
    "Strategy",
    "TaskState",
    "TimedSource",
    "Unknown",
    "WorkerClosures",
    "kind_of",
]

"""The errors that distlab raises.

Each message states the rule, the value that violates it and the remedy. The classes
derive from the built-in type that a Python user expects and have TensorFlow's names
where TensorFlow has one, so that ported `except` clauses work.
"""

from __future__ import annotations

from typing import Any


class DistlabError(Exception):
    """Base of all errors that distlab raises by itself.

    Example:
      >>> import distlab as dl
      >>> try:
      ...     dl.MirroredStrategy(["CPU:99"])
      ... except dl.errors.DistlabError as error:
      ...     print(type(error).__name__, isinstance(error, ValueError))
      DeviceError True
    """


class DeviceError(DistlabError, ValueError):
    """A device does not exist or is named twice, or there are too few devices."""


class BackendStartedError(DistlabError, RuntimeError):
    """A setting was changed after JAX had started its devices."""


class ContextError(DistlabError, RuntimeError):
    """A verb was called in a context in which it is not allowed."""


class IteratorContextError(ContextError, ValueError):
    """A batch was requested where distributed data can't be read, as in a replica function."""


class ScopeError(ContextError, ValueError):
    """A model was made outside of the strategy's scope in which it is used."""


class StructureError(DistlabError, TypeError):
    """Replicas or arguments have structures that do not match."""


class ValueShapeError(DistlabError, ValueError):
    """A value has a shape or dtype that the verb does not accept."""


class ShardingError(DistlabError, ValueError):
    """An array is divided over devices in a way that has no meaning for replicas."""


class OptionError(DistlabError, ValueError):
    """An option has an invalid value."""


class DonatedError(DistlabError, RuntimeError):
    """An array was used after it was donated."""


class ReduceOpError(DistlabError, ValueError):
    """A reduce op does not exist."""


class NotBatchedError(DistlabError, ValueError):
    """A dataset whose elements have no batch dimension can't be divided."""


class NeedsPythonError(DistlabError, TypeError):
    """A function needs Python values while it is being traced."""


class OutOfRangeError(DistlabError, IndexError):
    """The data is exhausted (TensorFlow's `OutOfRangeError`)."""


class InvalidArgumentError(DistlabError, ValueError):
    """An argument is not valid (TensorFlow's `InvalidArgumentError`)."""


class DataLossError(InvalidArgumentError):
    """A file is damaged or cut off (TensorFlow's `DataLossError`)."""


class NotFoundError(DistlabError, FileNotFoundError):
    """A file does not exist (TensorFlow's `NotFoundError`)."""


class CheckpointError(DistlabError, OSError):
    """A checkpoint can't be written; those written before are as they were."""


class CheckpointMismatchError(DistlabError, ValueError, AssertionError):
    """A checkpoint does not fit what it is restored into, which keeps its values.

    TensorFlow raises a `ValueError` for shapes and an `AssertionError` for names.
    """


class RecordError(DistlabError, OSError):
    """A run folder can't be written."""


class SimulationError(DistlabError, RuntimeError):
    """The process of `simulate` took too long or too much memory, or ended without a result."""


class CaptureError(DistlabError, RuntimeError):
    """A profile of the devices can't be taken now, or can't be read."""


class NotARunError(DistlabError, ValueError):
    """A path does not hold a recorded run, or holds one that can't be read."""


class PortInUseError(DistlabError, OSError):
    """The requested port is taken, or may be used by root only."""


class MissingExtraError(DistlabError, ImportError):
    """An optional part of distlab needs packages that are not installed."""


class CardinalityError(DistlabError, TypeError):
    """The size of a dataset is needed, and is infinite or not known."""


class OneShotError(DistlabError, RuntimeError):
    """An iterator that can be read only once was iterated again."""


class ArgumentTypeError(DistlabError, TypeError):
    """An argument has a type that the verb does not accept."""


class ArgumentValueError(DistlabError, ValueError):
    """An argument has a value that the verb does not accept, or that contradicts another one."""


class ClusterSpecError(DistlabError, ValueError):
    """The description of a cluster is invalid, or lacks the requested job or task."""


class ClusterError(DistlabError, RuntimeError):
    """The cluster, or its manager (Slurm, Kubernetes, Google Cloud), lacks what is needed."""


class WorkerError(ClusterError):
    """Another process of the cluster failed, is lost, or does not answer.

    What this process has in its own memory stays as it is. TensorFlow raises an
    `UnavailableError` or an `AbortedError`.

    Args:
      worker: The name of the process that failed, such as `"worker 1"`.
      host: The name of its machine.
      message: What happened to it, in its own words where they are known.

    Attributes:
      worker: The name of the process that failed.
      host: The name of its machine.
      message: What happened to it.

    Example:
      >>> import distlab as dl
      >>> error = dl.errors.WorkerError("worker 1", "node-7", "ValueError: bad batch")
      >>> print(error)
      worker 1 on node-7: ValueError: bad batch
    """

    def __init__(self, worker: str, host: str, message: str) -> None:
        super().__init__(f"{worker} on {host}: {message}")
        self.worker = worker
        self.host = host
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the three parts."""
        return type(self), (self.worker, self.host, self.message)


class ProgramOrderError(WorkerError):
    """Two workers ran different programs where all must run the same, in the same order.

    Args:
      worker: The name of the worker that differs from the chief.
      host: The name of its machine.
      message: Which programs they are.
      step: The number of the first program that differs, from 1.

    Attributes:
      step: The number of the first program that differs, from 1.

    Example:
      >>> import distlab as dl
      >>> error = dl.errors.ProgramOrderError("worker 1", "node-7", "train, evaluate", 65)
      >>> error.step, isinstance(error, dl.errors.WorkerError)
      (65, True)
    """

    def __init__(self, worker: str, host: str, message: str, step: int) -> None:
        super().__init__(worker, host, message)
        self.step = step

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the parts."""
        return type(self), (self.worker, self.host, self.message, self.step)


class ServerLostError(ClusterError):
    """A parameter server is lost, and with it the variables that it held."""


class CancelledError(DistlabError, RuntimeError):
    """A scheduled function did not run (TensorFlow's `CancelledError`)."""


class DuplicateTaskError(DistlabError, KeyError):
    """Two descriptions of a cluster name the same task."""

    __str__ = Exception.__str__
    """The message itself; `KeyError` would put it in quotes."""


class UnsupportedError(DistlabError, NotImplementedError):
    """TensorFlow has this name, or this argument, and distlab does not implement it."""


class NoEffectWarning(UserWarning):
    """An option was set that is accepted for compatibility and has no effect."""


class NotFiniteWarning(UserWarning):
    """A logged metric is nan or infinite."""


class NewerRunWarning(UserWarning):
    """A run was recorded by a newer version of distlab than the one that reads it."""


class RecompilationWarning(UserWarning):
    """A function is compiled again and again, because what it is compiled for changes.

    `Strategy.run` warns at the third compilation of a function that is made anew at each call
    and refers to something else each time, and at the fifth for other values of static arguments.
    """

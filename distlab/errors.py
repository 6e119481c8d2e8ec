"""The errors distlab raises.

Each says the rule, the value that broke it and the remedy. They derive from
the built-in type a Python user would expect and carry TensorFlow's names where
TensorFlow has one, so that ported `except` clauses work.
"""

from __future__ import annotations


class DistlabError(Exception):
    """Base of all errors that distlab raises by itself."""


class DeviceError(DistlabError, ValueError):
    """A device does not exist, is named twice, or there are too few."""


class BackendStartedError(DistlabError, RuntimeError):
    """Something had to be set before JAX started its devices, and was not."""


class ContextError(DistlabError, RuntimeError):
    """A verb was called in a context in which it has no meaning."""


class IteratorContextError(ContextError, ValueError):
    """A distributed iterator was asked for a batch inside a replica function."""


class StructureError(DistlabError, TypeError):
    """Replicas or arguments have structures that do not fit together."""


class ValueShapeError(DistlabError, ValueError):
    """A value has a shape or dtype that the verb can't take."""


class OptionError(DistlabError, ValueError):
    """An option has a value that it can't have."""


class DonatedError(DistlabError, RuntimeError):
    """An array was used again after its memory was given away."""


class ReduceOpError(DistlabError, ValueError):
    """A reduction was asked for that does not exist."""


class NotBatchedError(DistlabError, ValueError):
    """A dataset whose elements have no batch dimension can't be divided."""


class NeedsPythonError(DistlabError, TypeError):
    """A function needs Python values, and was being traced."""


class OutOfRangeError(DistlabError, IndexError):
    """The data came to its end (TensorFlow's `OutOfRangeError`)."""


class InvalidArgumentError(DistlabError, ValueError):
    """An argument is not valid (TensorFlow's `InvalidArgumentError`)."""


class RecordError(DistlabError, OSError):
    """A run folder can't be written."""


class CaptureError(DistlabError, RuntimeError):
    """A profile of the devices can't be taken now, or what was taken can't be read."""


class NotARunError(DistlabError, ValueError):
    """A path does not hold a recorded run, or holds one that can't be read."""


class PortInUseError(DistlabError, OSError):
    """The port asked for is taken."""


class MissingExtraError(DistlabError, ImportError):
    """A part of distlab needs packages that are not installed."""


class CardinalityError(DistlabError, TypeError):
    """A dataset's size is infinite or not known, and was asked for."""


class OneShotError(DistlabError, RuntimeError):
    """An iterator that can be read once only was iterated again."""


class ArgumentTypeError(DistlabError, TypeError):
    """An argument has a type that the verb can't take."""


class ArgumentValueError(DistlabError, ValueError):
    """An argument has a value that the verb can't take, or that contradicts another one."""


class ClusterSpecError(DistlabError, ValueError):
    """The description of a cluster makes no sense, or lacks what was asked for."""


class ClusterError(DistlabError, RuntimeError):
    """What runs the cluster (Slurm, Kubernetes, Google Cloud) did not give what is needed."""


class CancelledError(DistlabError, RuntimeError):
    """A scheduled function did not run (TensorFlow's `CancelledError`)."""


class DuplicateTaskError(DistlabError, KeyError):
    """Two descriptions of a cluster name the same task."""

    __str__ = Exception.__str__
    """The message itself; `KeyError` would put it in quotes."""


class UnsupportedError(DistlabError, NotImplementedError):
    """TensorFlow names this, and neither TensorFlow nor distlab does it."""

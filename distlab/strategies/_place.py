"""Where a strategy's replicas run, with what it keeps for that place."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, final

from distlab import events
from distlab.devices import selection
from distlab.devices.mesh import replica_mesh
from distlab.devices.selection import DeviceLike
from distlab.events import sink
from distlab.step.runner import Runner
from distlab.values.current_batch import Fed

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_numbers = itertools.count()


@final
class Place:
    """The devices of replicas that run in step.

    Most strategies have one. Each worker of a `ParameterServerStrategy` is
    another one, and has programs and batches of its own.

    Args:
      strategy: whose replicas run here.
      devices: of the replicas, in their order.
      name: the strategy as events name it.

    Attributes:
      number: the place's number in this process; events name it.
      mesh: the replicas' devices.
      fed: the batch that was given out here last.
      runner: keeps the programs.

    Raises:
      DeviceError: a device does not exist or is named twice.
    """

    def __init__(self, strategy: Strategy, devices: Iterable[DeviceLike], name: str) -> None:
        self.number = next(_numbers)
        self.mesh = replica_mesh(selection.find(devices))
        self.fed = Fed()
        self.runner = Runner(strategy)
        recorder = sink.recorder()
        if recorder.enabled:
            recorder.emit(
                events.Strategy(
                    time_ns=time.monotonic_ns(),
                    strategy=self.number,
                    name=name,
                    devices=list(self.mesh.names),
                )
            )

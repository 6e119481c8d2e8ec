"""`tf.tpu.experimental`: the grid of devices, and the assignment of replicas to them.

Example:
  >>> import distlab as dl
  >>> topology = dl.tpu.Topology()
  >>> assignment = dl.tpu.DeviceAssignment.build(topology, num_replicas=4)
  >>> strategy = dl.TPUStrategy(experimental_device_assignment=assignment)
  >>> strategy.extended.worker_devices
  ('CPU:0', 'CPU:1', 'CPU:2', 'CPU:3')
"""

from __future__ import annotations

from distlab.devices.topology import DeviceAssignment, Topology

__all__ = ["DeviceAssignment", "Topology"]

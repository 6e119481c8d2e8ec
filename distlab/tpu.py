"""`tf.tpu.experimental`: which devices stand where, and which replica gets which.

topology = distlab.tpu.Topology()
assignment = distlab.tpu.DeviceAssignment.build(topology, num_replicas=4)
strategy = distlab.TPUStrategy(experimental_device_assignment=assignment)
"""

from __future__ import annotations

from distlab.devices.topology import DeviceAssignment, Topology

__all__ = ["DeviceAssignment", "Topology"]

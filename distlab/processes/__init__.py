"""Several processes that run one program together, and their agreements.

`joining.join` makes the group once the processes have met (`meeting`), `joining.leave` ends it;
`group.current()` is None in a program of one process.

`exchange`, `from_chief` and `barrier` of a group number their calls by name, so all processes call
them for a name in the same order. None of them is a collective of the devices: they take 0.2 to
0.4 ms on one machine, while steps run. Every wait is `ProcessGroup.awaited`, which ends with a
`WorkerError` at its limit, or once another process is lost.
"""

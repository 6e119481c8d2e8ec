"""Several processes that run one program together, and their agreements.

The strategy joins; everything else asks whether the process has joined:

    from distlab.processes import group

    processes = group.current()      # None in a program of one process
    if processes is not None:
        processes.index, processes.count       # this process, and the number of all
        processes.workers[1].name, .host       # "worker 1", and the name of its machine
        processes.generation                   # 0, and one more after each restart
        processes.kv.set("note/1", "text")     # the coordination service's key-value store
        processes.exchange("ends", "3 steps")  # every process's text, in process order
        processes.from_chief("seed", "7")      # the chief's text
        processes.barrier("epoch")             # waits until all processes are there

`exchange`, `from_chief` and `barrier` number their calls by name. All processes must call them for
a name in the same order, and one thread at a time; different names may be used by different
threads. None of them is a collective of the devices, so each may be called while steps run. They
take 0.2 to 0.4 ms on one machine. All waits are `ProcessGroup.awaited`: one ends with a
`WorkerError` when its limit is over, when the worker's program has ended, or once
`processes.fail(error)` was called, as a watcher does when it knows that another process is lost.

`joining.join` makes the group, `joining.leave` ends it; the processes meet first (`meeting`),
so that one that never comes is an error that names it.
"""

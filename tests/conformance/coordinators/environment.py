"""What a coordinator's cluster adds to the environment of the programs of one process.

  env.cluster(workers, ps, partitioner=None) -> c with c.strategy and c.coordinator
  env.closure(fn)                          a function for coordinator.schedule
  env.busy(seconds)                        inside a closure: works that long
  env.ps_of(variable)                      number of the parameter server that holds it
  env.partitioner(kind, **kw)              "fixed"(shards), "min"(bytes, max_shards), "max"(bytes)
  env.shards(variable)                     the parts of a partitioned variable (a list)
  env.catch(thunk)                         {"raises": category} or {"returned": value}

Run as a program with a mode and names of programs, it prints what each returns, one a line. The
mode is "traced", "eager" or "processes"; in that, workers and parameter servers are processes,
c.kill_worker(i) and c.kill_ps(i) kill them, and a killed worker comes back by itself.
"""

import itertools
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import env as base_env  # noqa: E402

LIMIT_SECONDS = 120


class Cluster:
    def __init__(self, strategy, coordinator):
        self.strategy, self.coordinator = strategy, coordinator


class CoordinatorEnv(base_env.DistlabEnv):
    """A cluster whose workers and parameter servers are threads of this process."""

    category = base_env.category_with({"CancelledError": "Cancelled", "ClusterError": "Unavailable"})

    def __init__(self):
        super().__init__()
        self._ports = itertools.count()
        self._waits = None

    def cluster(self, workers, ps, partitioner=None):
        jobs = {"worker": workers, "ps": ps}
        spec = self.ClusterSpec({job: ["here:%d" % next(self._ports) for _ in range(n)]
                                 for job, n in jobs.items()})
        for job, n in jobs.items():
            for i in range(n):
                self.dist.Server(spec, job_name=job, task_index=i)
        resolver = self.dist.cluster_resolver.SimpleClusterResolver(spec)
        strategy = self.dist.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
        self._waits = threading.Event()
        return self._made(strategy, self._waits.set)

    def _made(self, strategy, waits):
        """A cluster that calls `waits` when the program waits for its coordinator."""
        coordinator = self.dist.coordinator.ClusterCoordinator(strategy)
        for verb in ("join", "fetch", "done"):
            def call(*args, verb=getattr(coordinator, verb)):
                waits()
                return verb(*args)
            setattr(coordinator, verb, call)
        return Cluster(strategy, coordinator)

    def closure(self, fn):
        return fn

    def busy(self, seconds):
        """Works on for some time after the program waits: a slow machine changes no order."""
        assert self._waits.wait(LIMIT_SECONDS)
        time.sleep(seconds)
        return self.tensor(0.0)

    def close(self):
        """Ends what was started."""

    def ps_of(self, v):
        return v.parameter_server

    def partitioner(self, kind, **kw):
        p = self.dist.experimental.partitioners
        return {"fixed": lambda: p.FixedShardsPartitioner(kw["shards"]),
                "min": lambda: p.MinSizePartitioner(kw["bytes"], kw["max_shards"]),
                "max": lambda: p.MaxSizePartitioner(kw["bytes"])}[kind]()

    def shards(self, v):
        return list(v.variables) if hasattr(v, "variables") else [v]


class ProcessEnv(CoordinatorEnv):
    """A cluster of processes, which the programs share until one kills a parameter server."""

    def __init__(self):
        super().__init__()
        self._launched = None
        self._waiting = None

    def cluster(self, workers, ps, partitioner=None):
        if self._launched is None:
            self._launched = self.dist.launch(workers=3, parameter_servers=3)
        launched = self._launched
        launched.client.wait_for_workers(6, timeout=LIMIT_SECONDS)  # one may have been killed
        resolver = self.dist.cluster_resolver.DaskClusterResolver(launched.client, workers, ps)
        strategy = self.dist.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
        self._waiting = os.path.join(tempfile.mkdtemp(), "waiting")
        made = self._made(strategy, pathlib.Path(self._waiting).touch)
        made.kill_worker = lambda i: launched.kill("worker", i)
        made.start_worker = lambda i: None
        made.kill_ps = lambda i: launched.kill("ps", i)
        return made

    def busy(self, seconds):
        """Works on for some time after the program waits: a slow machine changes no order."""
        end = time.monotonic() + LIMIT_SECONDS
        while not os.path.exists(self._waiting):
            assert time.monotonic() < end
            time.sleep(0.005)
        time.sleep(seconds)
        return self.tensor(0.0)

    def close(self):
        if self._launched is not None:
            self._launched.stop()

    def __getstate__(self):
        return {**self.__dict__, "_launched": None}


def read(name):
    with open(os.path.join(HERE, name)) as f:
        return json.load(f)


def main(mode, *names):
    import cases
    env, params = (ProcessEnv if mode == "processes" else CoordinatorEnv)(), read("params.json")
    env.dist.run_functions_eagerly(mode == "eager")
    for name in names:
        try:
            out = getattr(cases, "case_" + name)(env, params[name])
        except Exception as e:      # pylint: disable=broad-except
            traceback.print_exc()
            out = {"error": env.category(e), "message": str(e)[:300]}
        print(json.dumps([name, out]), flush=True)
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

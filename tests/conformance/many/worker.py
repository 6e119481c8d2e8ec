"""One worker of a cluster that runs programs; see README.md. TF_CONFIG names the cluster."""

import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import env as base_env  # noqa: E402
from runner import difference, load_module  # noqa: E402, F401

class ManyEnv(base_env.DistlabEnv):
    """What several workers add to the environment of one process.

      env.worker, env.workers, env.replicas    this worker's number, how many, local replicas of each
      env.strategy()                           the MultiWorkerMirroredStrategy of TF_CONFIG
      env.run(strategy, fn, args=())           strategy.run
      env.barrier(strategy)                    waits for all workers
      env.catch(thunk)                         {"raises": category} or {"returned": value}
    """

    category = base_env.category_with({"WorkerError": "Unavailable", "ClusterError": "Unavailable"})

    def __init__(self, worker, workers, replicas):
        base_env.MAX_DEVICES = replicas
        super().__init__()
        self.worker, self.workers, self.replicas = worker, workers, replicas
        self._strategy = self.dist.MultiWorkerMirroredStrategy()

    def strategy(self):
        return self._strategy

    def run(self, strategy, fn, args=(), kwargs=None):
        return strategy.run(fn, args=args, kwargs=kwargs)

    def barrier(self, strategy):
        self.run(strategy, lambda: self.dist.get_replica_context().all_reduce(
            "SUM", self.tensor(1.0)))


def cases():
    """All programs by name: `file.case`."""
    found = {}
    for name in sorted(os.listdir(os.path.join(HERE, "cases"))):
        if name.endswith(".py"):
            module = load_module(os.path.join(HERE, "cases", name))
            found.update({"%s.%s" % (name[:-3], attr[5:]): fn
                          for attr, fn in vars(module).items() if attr.startswith("case_")})
    return found


def read(name):
    with open(os.path.join(HERE, name)) as f:
        return json.load(f)


def run(names, modes, worker, workers, replicas, show):
    """Runs programs one after another, and shows what each returns as `[mode, name]`."""
    env = ManyEnv(worker, workers, replicas)
    params, programs = read("params.json"), cases()
    for mode in modes:
        env.dist.run_functions_eagerly(mode == "eager")
        for name in names:
            try:
                out = json.loads(json.dumps(programs[name](env, params[name])))
            except Exception as e:  # pylint: disable=broad-except
                traceback.print_exc()
                out = {"error": env.category(e), "message": str(e)[:300]}
            show("%s %s" % (mode, name), out)

"""One worker of a cluster that runs programs; see README.md. TF_CONFIG names the cluster."""

import importlib.util
import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import env as base_env  # noqa: E402

CATEGORIES = {"WorkerError": "Unavailable", "ClusterError": "Unavailable",
              **base_env._CATEGORY_BY_CLASS}


def category_of(exc):
    for cls in type(exc).__mro__:
        if cls.__name__ in CATEGORIES:
            return CATEGORIES[cls.__name__]
    return type(exc).__name__


class ManyEnv(base_env.DistlabEnv):
    """What several workers add to the environment of one process.

      env.worker, env.workers, env.replicas    this worker's number, how many, local replicas of each
      env.strategy()                           the MultiWorkerMirroredStrategy of TF_CONFIG
      env.run(strategy, fn, args=())           strategy.run
      env.barrier(strategy)                    waits for all workers
      env.catch(thunk)                         {"raises": category} or {"returned": value}
    """

    category = staticmethod(category_of)

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

    def catch(self, thunk):
        try:
            r = thunk()
        except Exception as e:      # pylint: disable=broad-except
            return {"raises": category_of(e)}
        return {"returned": self._safe_py(r)}


def cases():
    """All programs by name: `file.case`."""
    found = {}
    for name in sorted(os.listdir(os.path.join(HERE, "cases"))):
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location("case_" + name[:-3], os.path.join(HERE, "cases", name))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found.update({"%s.%s" % (name[:-3], attr[5:]): fn
                          for attr, fn in vars(module).items() if attr.startswith("case_")})
    return found


def difference(a, b, tol=1e-5, path=""):
    """The first place where two results differ, as (path, expected, found); None for none."""
    num = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)
    if num(a) and num(b):
        return None if a == b or abs(a - b) <= 1.001 * tol * max(1.0, abs(a)) else (path, a, b)
    if type(a) is not type(b):
        return path, a, b
    if isinstance(a, (dict, list)):
        if len(a) != len(b) or (isinstance(a, dict) and set(a) != set(b)):
            return path, a, b
        for k in a if isinstance(a, dict) else range(len(a)):
            d = difference(a[k], b[k], tol, "%s[%s]" % (path, k))
            if d:
                return d
        return None
    return None if a == b else (path, a, b)


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
                out = {"error": category_of(e), "message": str(e)[:300]}
            show("%s %s" % (mode, name), out)

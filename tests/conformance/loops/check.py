"""Runs the programs and compares with TensorFlow's numbers:
python check.py --impl distlab [--replicas 1 2 8] [--programs NAME ...] [--eager] [--verbose].

A program passes if each array differs by at most 1e-5 times max(1, its largest number); a call passes if it gives
TensorFlow's numbers, or raises where TensorFlow raises (the type of the error is printed, not compared).
Other programs: --file FILE --goldens DIR. --impl tf compares TensorFlow with its own recording.
"""

import argparse
import importlib.util
import json
import re
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LIMIT = 1e-5

# Where TensorFlow returns a variable, with the copy of replica 0, a value of Keras on JAX is an array: each replica's.
FIRST_ROW = ("own_mean_of_each", "own_variance_of_each", "sync_mean_of_each", "sync_variance_of_each")
# Each replica draws masks of its own here, so whether four losses fall is chance.
CHANCE = ("smaller",)


def load(file):
    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcomes(table):
    """{name: {"value": nested list} or {"raises": type, "message": first line}}."""
    found = {}
    for name, thunk in table.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = thunk()
            found[name] = {"value": None if value is None else np.asarray(value, "float64").tolist()}
        except Exception as error:
            message = re.sub("0x[0-9a-f]+", "0x", str(error).strip().split("\n")[0])[:200]
            found[name] = {"raises": type(error).__name__, "message": message}
    return found


def difference(found, expected):
    """What differs, in words; None if nothing does."""
    missing = sorted(set(expected) - set(found))
    if missing:
        return f"no {missing[0]}"
    worst, where = 0.0, None
    for name, numbers in expected.items():
        mine = np.asarray(found[name])
        if name in CHANCE:
            continue
        if name in FIRST_ROW:
            mine = mine[:1]
        if mine.shape != numbers.shape:
            return f"{name} has the shape {mine.shape}, TensorFlow's {numbers.shape}"
        mine, theirs = mine.astype("float64"), numbers.astype("float64")
        if not np.array_equal(np.isfinite(mine), np.isfinite(theirs)):
            return f"{name} is not finite where TensorFlow's is, or the other way round"
        if theirs.size:
            gap = np.nanmax(np.abs(mine - theirs)) / max(1.0, np.nanmax(np.abs(theirs)))
            if gap > worst:
                worst, where = gap, name
    if worst > LIMIT:
        many = [n for n, v in expected.items() if v.size and np.nanmax(np.abs(
            np.asarray(found[n]).astype("float64") - v.astype("float64"))) > LIMIT * max(1.0, np.nanmax(np.abs(v)))]
        return f"{where} differs by {worst:.1e}; {len(many)} of {len(expected)} arrays: {', '.join(many[:6])}"
    return None


def compare_call(found, expected, accident=False):
    if "raises" in expected:
        if accident:
            return None
        return None if "raises" in found else (
            f"TensorFlow raises {expected['raises']}, here it returned {str(found['value'])[:80]}")
    if "raises" in found:
        return f"{found['raises']}: {found['message'][:160]}"
    a, b = found["value"], expected["value"]
    if (a is None) != (b is None):
        return f"{a}, TensorFlow's {b}"
    if a is None:
        return None
    return difference({"value": np.asarray(a)}, {"value": np.asarray(b)}) and f"{a}, TensorFlow's {b}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", choices=["distlab", "tf"], default="distlab")
    parser.add_argument("--replicas", type=int, nargs="+")
    parser.add_argument("--programs", nargs="+")
    parser.add_argument("--file", type=Path, default=HERE / "programs.py")
    parser.add_argument("--goldens", type=Path, default=HERE / "goldens")
    parser.add_argument("--eager", action="store_true", help="run each step as Python, uncompiled")
    parser.add_argument("--verbose", action="store_true", help="print what passes, and tracebacks")
    args = parser.parse_args()
    import env as environment
    env = environment.make_env(args.impl, args.eager)
    programs = load(args.file)
    replicas = args.replicas or sorted({int(f.name.split("_")[1]) for f in args.goldens.glob("tf_*")})
    counts = {"programs": [0, 0], "calls": [0, 0]}

    def tell(kind, name, reason, note=""):
        if reason:
            counts[kind][1] += 1
            print(f"FAILED {name}: {reason}", flush=True)
        else:
            counts[kind][0] += 1
            if args.verbose:
                print(f"passed {name} {note}", flush=True)

    for n in replicas:
        for name, program in programs.PROGRAMS.items():
            if args.programs and name not in args.programs:
                continue
            start = time.perf_counter()
            with np.load(args.goldens / f"tf_{n}_{name}.npz") as golden:
                expected = dict(golden)
            try:
                reason = difference(program(env, env.strategy(n)), expected)
            except Exception as error:
                if args.verbose:
                    traceback.print_exc()
                reason = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:240]}"
            tell("programs", f"{name} on {n}", reason, f"{time.perf_counter() - start:.1f} s")
        golden = args.goldens / f"tf_{n}_calls.json"
        if hasattr(programs, "calls") and golden.exists() and (not args.programs or "calls" in args.programs):
            expected = json.loads(golden.read_text())
            for name, found in outcomes(programs.calls(env, env.strategy(n))).items():
                note = f"({found['raises']}, TensorFlow: {expected[name]['raises']})" if "raises" in found and \
                    "raises" in expected[name] else ""
                accident = name in getattr(programs, "ACCIDENTS", ())
                tell("calls", f"{name} on {n}", compare_call(found, expected[name], accident), note)
    for kind, (passed, failed) in counts.items():
        print(f"{kind}: {passed} passed, {failed} failed")
    passed, failed = np.sum(list(counts.values()), axis=0)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random calls of everything that the module has: `python python/tests/random_calls [--seconds N] [--seed N]`.

Draws calls of every binding, with arguments by the types of the stubs, some of them wrong on purpose: None, wrong sizes, NaN,
huge numbers, empty lists, objects of another device or in another's place, classes written in Python that return anything.
An exception or a result is right. Calls are made in batches, each in a process of its own; where one ends its process or
does not return, the last calls, the end of its standard error and the command that repeats that batch are printed, and
another batch goes on. The status is 1 then.

--only N makes batch N alone and prints all of its calls. --calls N: of a batch. --list prints the public classes of C++
without a binding, which this cannot reach.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
SECONDS_OF_A_BATCH_WITHOUT_A_CALL = 60
CALLS_SHOWN = 12


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--only", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--never", action="store_true", help="print the calls that have never returned")
    return parser.parse_args()


def unbound_classes():
    """Public classes of the headers that Python does not have, and why."""
    sys.path.insert(0, str(FOLDER.parent / "package"))
    import test_coverage as coverage

    public = {name for header in coverage.headers() for name, kind in coverage.declarations(header) if kind == "class"}
    return sorted((name, why) for name, why in coverage.ELSEWHERE.items() if name in public)


def wait(process, log):
    """@return None when it has ended, else why it is stopped"""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.02)
        grown = log.stat().st_size if log.exists() else 0
        if grown != size:
            size, since = grown, time.monotonic()
        elif time.monotonic() - since > SECONDS_OF_A_BATCH_WITHOUT_A_CALL:
            process.kill()
            process.wait()
            return f"no call has ended for {SECONDS_OF_A_BATCH_WITHOUT_A_CALL} s"
    return None


def run_batch(seed, index, calls):
    """@return (why the batch is wrong or None, outcomes of its calls by name, its log, its standard error)"""
    with tempfile.TemporaryDirectory() as folder:
        log, errors = pathlib.Path(folder, "log"), pathlib.Path(folder, "errors")
        work = pathlib.Path(folder, "work")
        work.mkdir()
        output = pathlib.Path(folder, "output")
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen([sys.executable, "-X", "faulthandler", str(FOLDER / "batch.py"), str(seed), str(index),
                                        str(calls), str(log)], cwd=work, stdout=out, stderr=err)
            why = wait(process, log)
        if why is None and process.returncode < 0:
            why = f"the process has ended with signal {-process.returncode}"
        elif why is None and process.returncode > 0:
            why = f"the process has ended with status {process.returncode}"
        text = log.read_text(errors="replace") if log.exists() else ""
        lines = output.read_text(errors="replace").splitlines()
        outcomes = json.loads(lines[-1]) if why is None else {}
        return why, outcomes, text, errors.read_text(errors="replace")


def report(seed, index, calls, why, log, errors):
    print(f"batch {index}: {why}. The last calls:")
    print("\n".join(log.splitlines()[-CALLS_SHOWN:]))
    print("standard error:\n" + "\n".join(errors.splitlines()[-40:]))
    print(f"again: {sys.executable} {FOLDER} --seed {seed} --calls {calls} --only {index}\n", flush=True)


def run(chosen):
    end = time.monotonic() + chosen.seconds
    totals, wrong, index = collections.defaultdict(lambda: [0, 0]), 0, 0
    while time.monotonic() < end or index == 0:
        why, outcomes, log, errors = run_batch(chosen.seed, index, chosen.calls)
        if why is not None:
            wrong += 1
            report(chosen.seed, index, chosen.calls, why, log, errors)
        for name, (made, returned) in outcomes.items():
            totals[name][0] += made
            totals[name][1] += returned
        index += 1
    return totals, wrong, index


def main():
    chosen = options()
    if chosen.list:
        print("\n".join(f"{name}: {why}" for name, why in unbound_classes()))
        return 0
    print(f"seed {chosen.seed}", flush=True)
    if chosen.only is not None:
        why, _, log, errors = run_batch(chosen.seed, chosen.only, chosen.calls)
        print(log)
        print(errors)
        print(why or "nothing wrong")
        return 0 if why is None else 1
    totals, wrong, batches = run(chosen)
    made = sum(made for made, _ in totals.values())
    returned = sum(returned for _, returned in totals.values())
    ever = sum(1 for _, returned in totals.values() if returned)
    print(f"{batches} batches, {made} calls of {len(totals)} names, {returned} returned, of {ever} names; {wrong} batches wrong")
    if chosen.never:
        print("\n".join(sorted(f"{name}: {made} calls" for name, (made, returned) in totals.items() if not returned)))
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

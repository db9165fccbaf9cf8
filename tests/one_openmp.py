"""Of OpenMP's run times a process has none with unmetal alone, and exactly one with PyTorch beside it.

    python one_openmp.py [unmetal torch|torch unmetal]   imports in that order, without arguments unmetal alone
"""

import importlib
import re
import sys

import numpy


def run_times():
    with open("/proc/self/maps") as maps:
        return sorted(set(re.findall(r"/\S*/lib(?:gomp|omp|iomp)[^/\s]*\.so\S*", maps.read())))


names = sys.argv[1:] or ["unmetal"]
modules = {name: importlib.import_module(name) for name in names}

# Both compute: what is loaded late is loaded now.
train = importlib.import_module("unmetal.train")
network = train.Network((8, 8, 1))
network.input.convolution(4, 3).relu().dense(2)
probabilities = network.predict(numpy.zeros((1, 8, 8, 1), numpy.float32))
assert numpy.isfinite(probabilities).all()
if "torch" in modules:
    torch = modules["torch"]
    assert torch.isfinite(torch.nn.Conv2d(1, 4, 3)(torch.zeros(1, 1, 8, 8))).all()

found = run_times()
expected = 1 if "torch" in modules else 0
if len(found) != expected:
    sys.exit(f"After importing {', then '.join(names)} the process has {len(found)} OpenMP run times, expected {expected}: {found}")
print(f"{' and '.join(names)}: {len(found)} OpenMP run times")

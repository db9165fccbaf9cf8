"""What a wheel of scripts/wheels may have inside, and must.

    check_wheel.py WHEEL...
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

MOST_BYTES = 15_000_000
OPENMP = re.compile(r"^lib(gomp|omp|iomp)\S*")
LICENCES = ("oneDNN/LICENSE", "oneDNN/THIRD-PARTY-PROGRAMS", "nanobind/LICENSE", "libhwy-dev/copyright", "LICENSE")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", str(library)))


def exported(library):
    """What others in the process could take for theirs; templates of the standard library are weak, and the same everywhere."""
    symbols = [line.split()[-2:] for line in output_of("nm", "--dynamic", "--defined-only", str(library)).splitlines()]
    return [name for kind, name in symbols if kind not in "VWu" or "dnnl" in name]


def faults(wheel):
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        yield f"it has {size} bytes, at most {MOST_BYTES} are allowed"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        root = pathlib.Path(folder)
        libraries = sorted(path for path in root.rglob("*.so*") if path.is_file())
        modules = [path for path in libraries if path.name.startswith("_core.")]
        if len(modules) != 1:
            yield f"it has {len(modules)} modules unmetal/_core, expected 1"
        for library in libraries:
            for name in [library.name, *needed(library)]:
                if OPENMP.match(name):
                    yield f"{library.name} brings an OpenMP run time: {name}"
        for module in modules:
            others = [name for name in exported(module) if name != "PyInit__core"]
            if others:
                yield f"{module.name} exports {len(others)} symbols beside PyInit__core, such as {others[0]}"
        licences = {str(path.relative_to(folder)).partition("/licenses/")[2] for path in root.rglob("*.dist-info/licenses/**/*")}
        for licence in LICENCES:
            if licence not in licences:
                yield f"the licence {licence} is missing"


def main():
    failed = False
    for wheel in map(pathlib.Path, sys.argv[1:]):
        found = list(faults(wheel))
        for fault in found:
            print(f"{wheel.name}: {fault}.")
        if not found:
            print(f"{wheel.name}: {wheel.stat().st_size} bytes; brings all licences and no OpenMP, and exports nothing of its own.")
        failed = failed or bool(found)
    return failed or len(sys.argv) < 2


if __name__ == "__main__":
    sys.exit(main())

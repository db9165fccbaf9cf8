"""Faults in CUDA kernels: built and packed where nvcc is, run where a GPU is."""

import collections
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import lzma
import os
import pathlib
import platform
import random
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from planting.checking import FILTERS, commit, entry_of, link_words, print_fault, print_outcome, run, self_check
from planting.places import CUDA_FAULTS, ROOT, candidates, changed_text, cuda_kernel_lines, draw
from planting.queue import Family, FaultQueue
from planting.report import closing_line

# What `unmetal conform --filter` looks for, where it is not what the family's faults are looked for with.
CUDA_FILTERS = {
    "convolution_tiled_cuda": ["direct tiled"], "convolution_staging_cuda": ["matmul", "cudnn"],
    "convolution_direct_cuda": [f"{kernel} {format} direct" for format in ("float32", "float16", "unorm8", "unorm16")
                               for kernel in ("CNNConvolution forward", "CNNConvolutionGradient gradient",
                                              "CNNFullyConnected forward", "CNNFullyConnectedGradient gradient")
                               if "Gradient" not in kernel or format.startswith("float")]}

LONGEST_CHECK = 900  # seconds of a self-check without a fault, beside others: pooling takes more than 240


def filters_of(unit):
    path = pathlib.PurePosixPath(unit)
    return CUDA_FILTERS.get(path.stem) or FILTERS.get(path.parts[1], [path.parts[1]])


class CudaBuild:
    """The program with libunmetal as a shared library, and small libraries that take the place of one of its sources.

    A source with a fault is compiled as the build compiles it, but a folder with the changed file is looked through
    first. The build's own object is what it is compared with, so device code is not compressed.
    """

    def __init__(self, folder, jobs):
        self.build = folder / "build"
        self.work = folder / "work"
        self.bundle = folder / "bundle"
        # What the CPU computes with kernels of its own is no part of this.
        vectors = ["-DCMAKE_CXX_FLAGS=-march=haswell -maes"] if platform.machine() == "x86_64" else []
        run(["cmake", "-S", ROOT, "-B", self.build, "-G", "Ninja", "-DUNMETAL_CUDA=ON",
             "-DUNMETAL_CUDA_ARCHITECTURES=90-real", "-DCMAKE_CUDA_FLAGS=-no-compress", "-DUNMETAL_BUILD_TESTS=OFF",
             "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", *vectors])
        subprocess.run(["cmake", "--build", self.build, "--target", "unmetal_program", "--parallel", str(jobs)], check=True)
        for name in ("bin", "lib"):
            shutil.rmtree(self.bundle / name, ignore_errors=True)
        for name in ("bin", "lib", "controls", "faults"):
            (self.bundle / name).mkdir(parents=True, exist_ok=True)
        self.work.mkdir(exist_ok=True)
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands = {pathlib.Path(entry["file"]).resolve(): entry for entry in commands}
        self.link_program()
        archives = [path for path in self.build.rglob("libunmetal*.a")]
        self.wanted = set(run(["nm", "--undefined-only", "--format=just-symbols", *archives]).split())
        self.locks = collections.defaultdict(threading.Lock)  # of each source
        self.controls = {}  # of each source: its device code, None when no library can take its place

    def link_program(self):
        command = link_words(self.build)
        words = [word for word in command if word not in ("-lcudadevrt", "-lcudart_static")]
        libraries = [word for word in words if re.search(r"^-l|\.so[.\d]*$", word)]
        static = next((word for word in words if word.endswith("libcudart_static.a")), None)
        archive = next((word for word in words if pathlib.Path(word).name == "libunmetal.a"), None)
        if static is None or archive is None:
            sys.exit(f"the program is linked in a way that is not known here:\n{shlex.join(command)}")
        self.cudart = pathlib.Path(static).parent / "libcudart.so"
        libraries += ["-ldl", "-lpthread", str(self.cudart)]
        self.library = self.bundle / "lib" / "libunmetal.so"
        self.linker = [words[0], "-shared", "-s"] + [word for word in words if word.startswith("-fuse-ld")]
        run([*self.linker, "-o", self.library, "-Wl,-soname,libunmetal.so", "-Wl,--whole-archive", archive,
             "-Wl,--no-whole-archive", *libraries], cwd=self.build)
        program = self.bundle / "bin" / "unmetal"
        words[words.index("-o") + 1] = str(program)
        words = [str(self.library) if word == archive else word for word in words if word != static]
        run([*words, "-s", str(self.cudart)], cwd=self.build)
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{self.library.parent}:{self.cudart.parent}"}
        for line in run(["ldd", program], env=environment).split("\n"):
            match = re.search(r"=> (/\S+)", line)
            # What belongs to the C library comes with every machine and must be that machine's own.
            if match and not re.search(r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util))[.-]", match.group(1)):
                copy = self.bundle / "lib" / pathlib.Path(match.group(1)).name
                if not copy.exists():
                    shutil.copy2(match.group(1), copy)
                    subprocess.run(["strip", "--strip-unneeded", copy], capture_output=True)

    def object_of(self, unit):
        """The build's own."""
        entry = self.commands[(ROOT / unit).resolve()]
        words = shlex.split(entry["command"])
        return pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]

    def compile(self, unit, folder, changed):
        """The object of a source, with another text of one file. @param changed (file, text)"""
        entry = self.commands[(ROOT / unit).resolve()]
        words = shlex.split(entry["command"])
        while not re.search(r"nvcc$", words[0]):
            words.pop(0)  # a cache of objects
        copy = folder / changed[0]
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(changed[1])
        source = copy if changed[0] == unit else entry["file"]
        target = folder / "object.o"
        words[words.index("-o") + 1] = str(target)
        words = [str(source) if word == entry["file"] else word for word in words]
        run([words[0], f"-I{folder}", *words[1:]], cwd=entry["directory"])
        return target

    @staticmethod
    def device_code(target, folder):
        """A digest without the names that the compiler gives a file."""
        code = folder / "device-code"
        run(["objcopy", "-O", "binary", "--only-section=.nv_fatbin", target, code])
        content = re.sub(rb"_GLOBAL__N__[0-9a-f]{8}_[0-9]+_\w*?_cu_[0-9a-f]{8}(_[0-9]+)?", b"", code.read_bytes())
        return hashlib.sha256(content).hexdigest()

    def library_of(self, target, folder, output):
        """A library whose functions take the place of those of the same name in libunmetal.so. It keeps its kernels to
        itself: those of libunmetal.so are registered under their names."""
        defined = run(["nm", "--defined-only", "--extern-only", target]).strip().split("\n")
        symbols = [line.split()[-2:] for line in defined]
        # Of weak ones, instances of our own templates: those of other libraries' are the same everywhere.
        names = [name for kind, name in symbols
                 if name in self.wanted and (kind in "TDBR" or (kind == "W" and "3mps6detail" in name))]
        shared = [name for kind, name in symbols if kind in "Vu"]  # type information and the like: one for all
        script = folder / "symbols.map"
        script.write_text("{ global: " + " ".join(f"{name};" for name in names + shared) + " local: *; };\n")
        run([*self.linker, "-o", output, target, f"-Wl,--version-script={script}", "-Wl,-z,defs", self.library, self.cudart],
            cwd=self.build)
        return names

    def control(self, unit):
        """The device code of a source without a fault; None when no library can take its place. The first time such a
        library is made."""
        with self.locks[unit]:
            if unit not in self.controls:
                with tempfile.TemporaryDirectory(dir=self.work) as name:
                    self.controls[unit] = self.make_control(unit, pathlib.Path(name))
            return self.controls[unit]

    def make_control(self, unit, folder):
        """Builds the library of a source without a fault, and sees that it takes the place of the original."""
        output = self.bundle / library_name(unit)
        names = self.library_of(self.object_of(unit), folder, output)
        environment = {**os.environ, "LD_PRELOAD": str(output), "LD_BIND_NOW": "1", "LD_DEBUG": "bindings",
                       "LD_LIBRARY_PATH": str(self.bundle / "lib")}
        done = subprocess.run([self.bundle / "bin" / "unmetal", "--version"], env=environment, capture_output=True, text=True)
        bound = {match.group(1) for match in re.finditer(
            rf"binding file \S*libunmetal\.so \[0\] to {re.escape(str(output))} \[0\]: normal symbol `(\S+)'", done.stderr)}
        if done.returncode != 0 or not names or not bound:
            print(f"{unit}: its library does not take the place of the original: {names}, {bound}\n{done.stdout}", flush=True)
            return None
        return self.device_code(self.object_of(unit), folder)

    def fault(self, unit, fault, library):
        """Builds the library of one; "" when it counts, else why it does not."""
        control = self.control(unit)
        if control is None:
            return "cannot be loaded"
        with tempfile.TemporaryDirectory(dir=self.work) as name:
            folder = pathlib.Path(name)
            try:
                target = self.compile(unit, folder, (fault.file, changed_text(fault)))
            except RuntimeError:
                return "does not compile"
            if self.device_code(target, folder) == control:
                return "changes no code"
            self.library_of(target, folder, library)
        return ""


def write_json(path, value):
    """The file is there as a whole or not at all."""
    written = path.with_suffix(".new")
    written.write_text(json.dumps(value, indent=1) + "\n")
    written.replace(path)


def library_name(unit):
    return f"controls/{pathlib.Path(unit).stem}.so"


class CudaPlanting(FaultQueue):
    """Builds faults. What an earlier run built, or left out, is taken from there while its source is the same."""

    def __init__(self, build, chosen, arguments):
        super().__init__([Family(name, cuda_faults(units, arguments, name), arguments.count)
                          for name, units in chosen.items()], arguments.end)
        self.build = build
        self.head = {"commit": commit(), "seed": arguments.seed, "count": arguments.count}

    def build_once(self, unit, fault, library):
        """@param library where it goes. ("" when the fault counts, else why it does not; whether an earlier run found out)"""
        record = self.build.work / f"{library.stem}.json"
        planted = [unit, *fault]
        if record.exists() and record.stat().st_mtime > self.build.object_of(unit).stat().st_mtime:
            known = json.loads(record.read_text())
            if known["planted"] == planted and (known["why"] or library.exists() and self.build.control(unit)):
                return known["why"], True
        why = self.build.fault(unit, fault, library)
        write_json(record, {"planted": planted, "why": why})
        return why, False

    def plant(self, family, place, fault):
        unit, fault, _ = fault
        name = f"faults/{family.name}-{place}.so"
        why, known = self.build_once(unit, fault, self.build.bundle / name)
        entry = entry_of(family.name, fault)
        print_fault(f"{why or 'built'}{' before' if known else ''}, in {pathlib.PurePosixPath(unit).name}", entry)
        self.done(family, place, None if why else {**entry, "unit": unit, "library": name})

    def done(self, family, place, entry):
        """Lists what is there with each fault: whoever stops this can run the bundle."""
        with self.changed:
            super().done(family, place, entry)
            self.write_list()

    def write_list(self):
        """faults.json of the bundle; returns what is in it."""
        faults = self.entries()
        units = {unit: {"filters": filters_of(unit), "library": library_name(unit)}
                 for unit in sorted({fault["unit"] for fault in faults})}
        bundle = {**self.head, "units": units, "faults": faults}
        write_json(self.build.bundle / "faults.json", bundle)
        return bundle


def taking_turns(*orders):
    """What several iterators give, in turns."""
    end = object()
    for turn in itertools.zip_longest(*orders, fillvalue=end):
        yield from (one for one in turn if one is not end)


def cuda_faults(units, arguments, family):
    """The faults of a family in the order in which they are planted: (source, fault, its kind)."""
    generator = random.Random(f"{arguments.seed} {family}")
    found = [(unit, fault, fault.kind) for unit, names in units.items()
             for fault in candidates(names, CUDA_FAULTS, cuda_kernel_lines)]
    groups = collections.defaultdict(list)  # by the word of --first, "" for the others
    for one in found:
        groups[next((word for word in arguments.first if word in one[1].file), "")].append(one)
    others = draw(groups.pop("", []), generator)
    return taking_turns(taking_turns(*(draw(group, generator) for group in groups.values())), others)


def build_cuda(chosen, arguments):
    """Builds and bundles the faults of some families; the exit status."""
    started = time.monotonic()
    jobs = arguments.jobs or os.cpu_count() or 1
    build = CudaBuild(arguments.build.resolve(), jobs)
    print(f"built without a fault after {time.monotonic() - started:.0f} s", flush=True)
    planting = CudaPlanting(build, chosen, arguments)
    planting.run(jobs)
    bundle = planting.write_list()
    print(f"{len(bundle['faults'])} faults, {time.monotonic() - started:.0f} s (seed {arguments.seed})", flush=True)
    unreplaced = sorted(unit for unit, code in build.controls.items() if code is None)
    if arguments.unpacked or unreplaced:
        return f"no library takes the place of {', '.join(unreplaced)}" if unreplaced else 0
    bundled = {entry["library"] for entry in [*bundle["faults"], *bundle["units"].values()]}
    archive = arguments.build / "faults.tar.xz"
    # The libraries resemble each other: a window as large as all of them.
    with lzma.open(archive, "wb", filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27}]) as stream:
        with tarfile.open(fileobj=stream, mode="w|") as members:
            for path in [build.bundle / "bin", build.bundle / "lib", build.bundle / "faults.json",
                         *(build.bundle / name for name in sorted(bundled))]:
                members.add(path, "faults" / path.relative_to(build.bundle))
    print(f"{archive}: {archive.stat().st_size} bytes, {time.monotonic() - started:.0f} s")
    return 0


@contextlib.contextmanager
def opened(bundle):
    """The folder of a bundle, which is an archive or that folder."""
    if bundle.is_dir():
        yield bundle.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="unmetal-faults-") as name:
        with lzma.open(bundle) as stream, tarfile.open(fileobj=stream) as archive:
            archive.extractall(name, filter="data")
        yield pathlib.Path(name) / "faults"


class CudaTrial:
    """Runs the self-check of each source without a fault, and with each fault."""

    def __init__(self, folder, device, end):
        """@param end the time at which nothing runs any more (time.monotonic), or None"""
        self.folder = folder
        self.device = device
        self.end = end
        self.bundle = json.loads((folder / "faults.json").read_text())

    def left(self):
        return float("inf") if self.end is None else self.end - time.monotonic()

    def check(self, library, filters, limit):
        """(None when green, otherwise how it turned red; seconds; whether time was left to see that)"""
        if self.left() < 1:
            return None, 0, False
        environment = {"LD_PRELOAD": str(self.folder / library),
                       "LD_LIBRARY_PATH": f"{self.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        red, seconds = self_check([self.folder / "bin" / "unmetal", "conform", "--device", self.device], environment, filters,
                                  min(limit, self.left()))
        return red, seconds, red != "does not end" or self.left() > 0

    def check_unit(self, unit):
        """(why its faults cannot be judged or None, seconds)"""
        entry = self.bundle["units"][unit]
        red, seconds, in_time = self.check(entry["library"], entry["filters"], LONGEST_CHECK)
        red = red if in_time else "no time was left"
        print(f"{red or 'green'} without a fault: {unit}, {seconds:.0f} s", flush=True)
        return red, seconds

    def check_fault(self, fault, without):
        """@param without what check_unit said of its source"""
        red, seconds = without
        fault["outcome"], fault["seconds"] = None, 0
        if red is None:
            outcome, fault["seconds"], in_time = self.check(
                fault["library"], self.bundle["units"][fault["unit"]]["filters"], 30 + 4 * seconds)
            if in_time:
                fault["outcome"] = outcome
            else:
                red = "no time was left"
        if red is not None:
            fault["unjudged"] = red
        print_outcome(fault)

    def run(self, jobs):
        """The faults of all families take turns, after all sources without one have begun."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            without = {unit: pool.submit(self.check_unit, unit) for unit in self.bundle["units"]}
            turns = collections.Counter()
            order = []
            for fault in self.bundle["faults"]:
                order.append((turns[fault["family"]], len(order), fault))
                turns[fault["family"]] += 1
            trials = [pool.submit(lambda fault=fault: self.check_fault(fault, without[fault["unit"]].result()))
                      for _, _, fault in sorted(order, key=lambda one: one[:2])]
            for trial in trials:
                trial.result()
        return self.bundle


def run_cuda(arguments):
    """Runs a bundle; prints a line for each fault and the count, writes the results."""
    with opened(arguments.run) as folder:
        bundle = CudaTrial(folder, arguments.device, arguments.end).run(arguments.jobs or 12)
    devices = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    bundle["machine"] = devices.stdout.split("\n")[0] if devices else ""
    if arguments.results:
        write_json(arguments.results, bundle)
    return closing_line(bundle)

"""Faults in CUDA kernels: built and packed where nvcc is, run where a GPU is."""

import concurrent.futures
import hashlib
import json
import lzma
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

from planting.checking import FILTERS, commit, entry_of, print_fault, print_outcome, run, self_check
from planting.places import CUDA_FAULTS, ROOT, candidates, changed_text, cuda_kernel_lines, draw
from planting.report import closing_line

CUDA_FOLDER = ROOT / "build" / "cuda-faults"
CUDA_PACK = CUDA_FOLDER / "faults.tar.xz"


# What `unmetal conform --filter` looks for, where it is not what the family's faults are looked for with.
CUDA_FILTERS = {
    "convolution_few_channels_cuda": ["few channels"], "convolution_staging_cuda": ["matmul", "cudnn"],
    "convolution_tensor_cores_cuda": ["tensor cores"],
    "convolution_plain_cuda": [f"{kernel} {format} plain" for format in ("float32", "float16", "unorm8", "unorm16")
                               for kernel in ("CNNConvolution forward", "CNNConvolutionGradient gradient",
                                              "CNNFullyConnected forward", "CNNFullyConnectedGradient gradient")
                               if "Gradient" not in kernel or format.startswith("float")]}


def filters_of(unit):
    path = pathlib.PurePosixPath(unit)
    return CUDA_FILTERS.get(path.stem) or FILTERS.get(path.parts[1], [path.parts[1]])


class CudaBuild:
    """The program with libunmetal as a shared library, and small libraries that take the place of one of its sources.

    The checkout's build folder of the preset `cuda` is used. A source is compiled as there, but a folder with the
    changed file is looked through first.
    """

    def __init__(self):
        run(["cmake", "--preset", "cuda", "-DUNMETAL_CUDA_ARCHITECTURES=90-real", "-DUNMETAL_BUILD_PROGRAM=ON"], cwd=ROOT)
        subprocess.run(["cmake", "--build", "--preset", "cuda", "--target", "unmetal_program"], cwd=ROOT, check=True)
        self.build = ROOT / "build" / "cuda"
        self.work = CUDA_FOLDER / "work"
        self.pack = CUDA_FOLDER / "pack"
        for folder in (self.work, self.pack):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in ("bin", "lib", "controls", "faults"):
            (self.pack / folder).mkdir(parents=True)
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands = {pathlib.Path(entry["file"]).resolve(): entry for entry in commands}
        self.link_program()
        archives = [path for path in self.build.rglob("libunmetal*.a")]
        self.wanted = set(run(["nm", "--undefined-only", "--format=just-symbols", *archives]).split())
        self.controls = {}  # of each source: its device code

    def link_program(self):
        text = run(["ninja", "-C", self.build, "-t", "commands", "unmetal_program"]).strip().split("\n")[-1]
        words = [word for word in shlex.split(text) if word not in (":", "&&")]
        words = [word for word in words if word not in ("-lcudadevrt", "-lcudart_static")]
        libraries = [word for word in words if re.search(r"^-l|\.so[.\d]*$", word)]
        static = next((word for word in words if word.endswith("libcudart_static.a")), None)
        archive = next((word for word in words if pathlib.Path(word).name == "libunmetal.a"), None)
        if static is None or archive is None:
            sys.exit(f"the program is linked in a way that is not known here:\n{text}")
        self.cudart = pathlib.Path(static).parent / "libcudart.so"
        libraries += ["-ldl", "-lpthread", str(self.cudart)]
        self.library = self.pack / "lib" / "libunmetal.so"
        self.linker = [words[0], "-shared", "-s"] + [word for word in words if word.startswith("-fuse-ld")]
        run([*self.linker, "-o", self.library, "-Wl,-soname,libunmetal.so", "-Wl,--whole-archive", archive,
             "-Wl,--no-whole-archive", *libraries], cwd=self.build)
        program = self.pack / "bin" / "unmetal"
        words[words.index("-o") + 1] = str(program)
        words = [str(self.library) if word == archive else word for word in words if word != static]
        run([*words, "-s", str(self.cudart)], cwd=self.build)
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{self.library.parent}:{self.cudart.parent}"}
        for line in run(["ldd", program], env=environment).split("\n"):
            match = re.search(r"=> (\S+)", line)
            # What belongs to the C library comes with every machine and must be that machine's own.
            if match and not re.search(r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util))[.-]", match.group(1)):
                copy = self.pack / "lib" / pathlib.Path(match.group(1)).name
                if not copy.exists():
                    shutil.copy2(match.group(1), copy)
                    subprocess.run(["strip", "--strip-unneeded", copy], capture_output=True)

    def compile(self, unit, place, changed=None):
        """The object of a source, with another text of one file. @param changed (file, text)"""
        entry = self.commands[(ROOT / unit).resolve()]
        words = shlex.split(entry["command"])
        while not re.search(r"nvcc$", words[0]):
            words.pop(0)  # a cache of objects
        folder = self.work / place
        folder.mkdir(parents=True, exist_ok=True)
        source = pathlib.Path(entry["file"])
        if changed is not None:
            copy = folder / changed[0]
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(changed[1])
            if changed[0] == unit:
                source = copy
        target = folder / "object.o"
        words[words.index("-o") + 1] = str(target)
        words = [str(source) if word == entry["file"] else word for word in words]
        run([words[0], f"-I{folder}", *words[1:], "-no-compress"], cwd=entry["directory"])
        return target

    @staticmethod
    def device_code(target):
        """A digest without the names that the compiler gives a file."""
        code = target.with_suffix(".fatbin")
        run(["objcopy", "-O", "binary", "--only-section=.nv_fatbin", target, code])
        content = re.sub(rb"_GLOBAL__N__[0-9a-f]{8}_[0-9]+_\w*?_cu_[0-9a-f]{8}(_[0-9]+)?", b"", code.read_bytes())
        code.unlink()
        return hashlib.sha256(content).hexdigest()

    def library_of(self, target, output):
        """A library whose functions take the place of those of the same name in libunmetal.so. It keeps its kernels to
        itself: those of libunmetal.so are registered under their names."""
        defined = run(["nm", "--defined-only", "--extern-only", target]).strip().split("\n")
        symbols = [line.split()[-2:] for line in defined]
        # Of weak ones, instances of our own templates: those of other libraries' are the same everywhere.
        names = [name for kind, name in symbols
                 if name in self.wanted and (kind in "TDBR" or (kind == "W" and "3mps6detail" in name))]
        shared = [name for kind, name in symbols if kind in "Vu"]  # type information and the like: one for all
        script = target.with_suffix(".map")
        script.write_text("{ global: " + " ".join(f"{name};" for name in names + shared) + " local: *; };\n")
        run([*self.linker, "-o", output, target, f"-Wl,--version-script={script}", "-Wl,-z,defs", self.library, self.cudart],
            cwd=self.build)
        return names

    def control(self, unit):
        """Builds the library of a source without a fault, and sees that it takes the place of the original."""
        target = self.compile(unit, "control-" + pathlib.Path(unit).stem)
        output = self.pack / "controls" / f"{pathlib.Path(unit).stem}.so"
        names = self.library_of(target, output)
        self.controls[unit] = self.device_code(target)
        environment = {**os.environ, "LD_PRELOAD": str(output), "LD_BIND_NOW": "1", "LD_DEBUG": "bindings",
                       "LD_LIBRARY_PATH": str(self.pack / "lib")}
        done = subprocess.run([self.pack / "bin" / "unmetal", "--version"], env=environment, capture_output=True, text=True)
        bound = {match.group(1) for match in re.finditer(
            rf"binding file \S*libunmetal\.so \[0\] to {re.escape(str(output))} \[0\]: normal symbol `(\S+)'", done.stderr)}
        if done.returncode != 0 or not names or not bound:
            sys.exit(f"{unit}: its library does not take the place of the original: {names}, {bound}\n{done.stdout}")

    def fault(self, unit, fault, number):
        """Builds one; "" when it counts, else why it does not."""
        place = f"fault-{number}"
        try:
            target = self.compile(unit, place, (fault.file, changed_text(fault)))
        except RuntimeError:
            return "does not compile"
        if self.device_code(target) == self.controls[unit]:
            return "changes no code"
        self.library_of(target, self.pack / "faults" / f"{number}.so")
        return ""


def build_cuda(chosen, arguments):
    """Builds and packs the faults of some families."""
    started = time.monotonic()
    build = CudaBuild()
    jobs = concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs or os.cpu_count() or 1))
    list(jobs.map(build.control, sorted({unit for units in chosen.values() for unit in units})))
    print(f"built without a fault after {time.monotonic() - started:.0f} s", flush=True)

    def build_family(family):
        found = [(unit, fault) for unit, names in chosen[family].items()
                 for fault in candidates(names, CUDA_FAULTS, cuda_kernel_lines)]
        # draw() looks at a fault's kind, its third entry.
        order = draw([(unit, fault, fault[2]) for unit, fault in found], random.Random(f"{arguments.seed} {family}"))
        taken = []
        for number, (unit, fault, _) in enumerate(order):
            if len(taken) == arguments.count:
                break
            place = f"{family}-{number}"
            why = build.fault(unit, fault, place)
            entry = entry_of(family, fault)
            print_fault(f"{why or 'built'}, in {pathlib.PurePosixPath(unit).name}", entry)
            if not why:
                taken.append({**entry, "unit": unit, "library": f"faults/{place}.so"})
        return taken

    faults = [fault for taken in jobs.map(build_family, chosen) for fault in taken]
    units = {unit: {"filters": filters_of(unit), "library": f"controls/{pathlib.Path(unit).stem}.so"}
             for unit in sorted({fault["unit"] for fault in faults})}
    (build.pack / "faults.json").write_text(json.dumps(
        {"commit": commit(), "seed": arguments.seed, "count": arguments.count, "units": units, "faults": faults}, indent=1))
    for control in (build.pack / "controls").iterdir():
        if f"controls/{control.name}" not in {unit["library"] for unit in units.values()}:
            control.unlink()
    # The libraries resemble each other: a window as large as all of them.
    with lzma.open(CUDA_PACK, "wb", filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27}]) as stream:
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.add(build.pack, "faults")
    print(f"{CUDA_PACK.relative_to(ROOT)}: {CUDA_PACK.stat().st_size} bytes, {len(faults)} faults, "
          f"{time.monotonic() - started:.0f} s (seed {arguments.seed})")


def check_library(folder, library, filters, device, limit):
    environment = {"LD_PRELOAD": str(folder / library),
                   "LD_LIBRARY_PATH": f"{folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    return self_check([folder / "bin" / "unmetal", "conform", "--device", device], environment, filters, limit)


def run_cuda(arguments):
    """Runs a pack; prints a line for each fault and the count, writes the results."""
    with tempfile.TemporaryDirectory(prefix="unmetal-faults-") as name:
        with lzma.open(arguments.run) as stream, tarfile.open(fileobj=stream) as archive:
            archive.extractall(name, filter="data")
        folder = pathlib.Path(name) / "faults"
        pack = json.loads((folder / "faults.json").read_text())
        jobs = concurrent.futures.ThreadPoolExecutor(arguments.jobs or 12)

        def check_unit(unit):
            entry = pack["units"][unit]
            red, seconds = check_library(folder, entry["library"], entry["filters"], arguments.device, 240)
            print(f"{red or 'green'} without a fault: {unit}, {seconds:.0f} s", flush=True)
            return unit, (red, seconds)

        without = dict(jobs.map(check_unit, pack["units"]))

        def check_fault(fault):
            red, seconds = without[fault["unit"]]
            if red is None:
                fault["outcome"], fault["seconds"] = check_library(
                    folder, fault["library"], pack["units"][fault["unit"]]["filters"], arguments.device, 30 + 4 * seconds)
            else:
                fault["outcome"], fault["seconds"], fault["unjudged"] = None, 0, red
            print_outcome(fault)
            return fault

        pack["faults"] = list(jobs.map(check_fault, pack["faults"]))
    devices = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    pack["machine"] = devices.stdout.split("\n")[0] if devices else ""
    if arguments.results:
        arguments.results.write_text(json.dumps(pack, indent=1))
    return closing_line(pack)

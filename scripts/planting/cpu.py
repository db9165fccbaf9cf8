"""Faults in kernels of the CPU: each becomes a program of its own, in a temporary folder."""

import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

from planting.checking import FILTERS, FURTHER_FILTERS, commit, entry_of, link_words, print_fault, print_outcome, run, self_check
from planting.places import ROOT, Fault, candidates, changed_text, draw
from planting.queue import Family, FaultQueue

# Two threads share each loop, so that what depends on shares is there to be wrong.
ARGUMENTS = ["conform", "--threads", "2"]
STAGES = [["--cases", "6"], []]  # most faults are found by any cases of a row
# A fault may ask for any amount of memory, or leave some behind, which makes no result wrong.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0:symbolize=0:hard_rss_limit_mb=6000", "OMP_NUM_THREADS": "2"}
LIBRARY = "CMakeFiles/unmetal.dir/"  # where the objects of the library are


class CpuBuild:
    """The program under the address sanitizer, and the same with one file changed."""

    def __init__(self, folder, jobs):
        self.folder = folder.resolve()
        run(["cmake", "-S", ROOT, "-B", self.folder, "-G", "Ninja", "-DUNMETAL_CUDA=OFF", "-DUNMETAL_BUILD_TESTS=OFF",
             "-DUNMETAL_SANITIZE=address", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"])
        subprocess.run(["cmake", "--build", self.folder, "--target", "unmetal_program", "--parallel", str(jobs)], check=True)
        self.program = self.folder / "tools" / "unmetal"
        self.commands = {}  # of each object: source, and what compiles it
        for entry in json.loads((self.folder / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            self.commands[words[words.index("-o") + 1]] = (entry["file"], words)
        self.read_files = self.dependencies()
        self.linker = self.link_command()

    def dependencies(self):
        """For each object of the library the files of the tree that it was compiled from."""
        files, found = set(), {}
        for line in run(["ninja", "-C", self.folder, "-t", "deps"]).split("\n"):
            if match := re.match(r"(\S+): #deps", line):
                files = set()
                if match.group(1).startswith(LIBRARY):
                    found[match.group(1)] = files
            elif line.startswith(" "):
                files.add(os.path.normpath(self.folder / line.strip()))
        return {target: {str(pathlib.Path(name).relative_to(ROOT)) for name in names if name.startswith(f"{ROOT}/mps/")}
                for target, names in found.items()}

    def link_command(self):
        words = link_words(self.folder)
        return words + (["-Wl,--thread-count=1"] if "-fuse-ld=mold" in words else [])

    def objects_with(self, family, name):
        """The objects of the family, and of what families share, that a file is part of."""
        folders = re.compile(rf"mps[/_]({family}|core)(/|_cxx)")
        return sorted(target for target, names in self.read_files.items() if name in names and folders.search(target))

    def compile(self, target, folder, name):
        """The object in which the file `name` is the one in `folder`."""
        source, words = self.commands[target]
        while not re.search(r"(\+\+|g?cc|clang)(-\d+)?$", words[0]):
            words = words[1:]  # a cache of objects
        words = list(words)
        changed = source
        if source == str(ROOT / name):
            changed = str(folder / name)
        elif f'"{ROOT / name}"' in (text := pathlib.Path(source).read_text()):  # a source of several
            changed = str(folder / pathlib.Path(source).name)
            pathlib.Path(changed).write_text(text.replace(f'"{ROOT / name}"', f'"{folder / name}"'))
        output = folder / target.replace("/", "-")
        words[words.index("-o") + 1] = str(output)
        words = [changed if word == source else word for word in words]
        run([words[0], f"-I{folder}", *words[1:], "-w"], cwd=self.folder)
        return output

    def objects(self, folder, family, name, text):
        """The objects that take the place of the library's when a file has another text."""
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return [self.compile(target, folder, name) for target in self.objects_with(family, name)]

    def link(self, objects, program):
        at = self.linker.index("-o")
        run([*self.linker[:at], *objects, "-o", program, *self.linker[at + 2:], "-s"], cwd=self.folder)

    def check(self, program, filters, limit, processor_limits):
        """(None when green, otherwise how it turned red; seconds of each stage)"""
        taken = []
        for stage, processor_limit in zip(STAGES, processor_limits):
            red, seconds = self_check([program, *ARGUMENTS, *stage], ENVIRONMENT, filters, limit - sum(taken), processor_limit)
            taken.append(seconds)
            if red is not None:
                break
        return red, taken

    def try_fault(self, family, fault, limits):
        """(why it does not count or "", None or how it turned red, seconds)
        @param limits for the self-check, when it begins: seconds in all and seconds of processor time of each stage"""
        with tempfile.TemporaryDirectory(prefix="unmetal-fault-") as name:
            folder = pathlib.Path(name)
            try:
                objects = self.objects(folder, family, fault.file, changed_text(fault))
                self.link(objects, folder / "unmetal")
            except RuntimeError:
                return "does not compile", None, 0
            filters = FILTERS.get(family, [family]) + FURTHER_FILTERS.get(fault.file, [])
            outcome, taken = self.check(folder / "unmetal", filters, *limits())
            seconds = sum(taken)
            if outcome is None:
                code = [path.read_bytes() for path in objects]
                same = self.objects(folder, family, fault.file, (ROOT / fault.file).read_text())
                if code == [path.read_bytes() for path in same]:
                    return "changes no code", None, seconds
            return "", outcome, seconds


class Planting(FaultQueue):
    """Begins with the self-check of each family without a fault, which says how long it may take."""

    def __init__(self, build, families, end):
        super().__init__(families, end)
        self.build = build
        self.unchecked = list(families)
        for family in families:
            family.ready = False  # until the self-check was green
            family.limits = None  # seconds of processor time of each stage of it

    def take(self):
        """The fault is None when the program is to be checked without one."""
        with self.changed:
            if self.unchecked and not self.out_of_time():
                return self.unchecked.pop(0), 0, None
        return super().take()

    def check_without_fault(self, family):
        red, taken = self.build.check(self.build.program, FILTERS.get(family.name, [family.name]), 600,
                                      [None for _ in STAGES])
        print(f"{family.name}: {red or 'green'} without a fault, {sum(taken):.0f} s", flush=True)
        if red is not None:
            family.count = 0
            family.entries[0] = {"family": family.name, "unjudged": f"without a fault: {red}"}
        family.limits = [20 + round(6 * seconds) for seconds in taken]
        family.ready = True

    def limits(self, family):
        waiting = 10 * sum(family.limits)  # others may keep the processors busy
        return waiting if self.end is None else min(waiting, self.end - time.monotonic()), family.limits

    def plant(self, family, place, fault):
        if fault is None:
            self.check_without_fault(family)
            return
        why, outcome, seconds = self.build.try_fault(family.name, fault, lambda: self.limits(family))
        entry = entry_of(family.name, fault)
        if why:
            print_fault(why, entry)
        else:
            entry |= {"outcome": outcome, "seconds": seconds}
            if outcome == "does not end" and self.out_of_time():
                entry |= {"outcome": None, "unjudged": "no time was left"}
            print_outcome(entry)
        self.done(family, place, None if why else entry)


def plant_cpu(chosen, arguments):
    """Plants faults; what was found, as --results writes it."""
    jobs = arguments.jobs or os.cpu_count() or 1
    build = CpuBuild(arguments.build, jobs)
    planting = Planting(build, [
        Family(name, draw(candidates(files), random.Random(f"{arguments.seed} {name}")), arguments.count)
        for name, files in chosen.items()], arguments.end)
    return {"commit": commit(), "seed": arguments.seed, "count": arguments.count, "machine": processor(),
            "faults": planting.run(jobs)}


def plant_again(bundle, arguments):
    """Plants once more what was not caught, or not judged, and is not known to change no result."""
    jobs = arguments.jobs or os.cpu_count() or 1
    build = CpuBuild(arguments.build, jobs)

    def plant(entry):
        fault = place_again(entry)
        why, outcome, seconds = build.try_fault(entry["family"], fault, lambda: (6000, [600 for _ in STAGES]))
        if why:
            sys.exit(f"{fault.file}:{fault.index + 1} {why}")
        entry |= {"outcome": outcome, "seconds": seconds, "again": "unjudged" not in entry}
        entry.pop("unjudged", None)
        print_outcome(entry)

    missed = [entry for entry in bundle["faults"] if "file" in entry and not entry["outcome"] and "equivalent" not in entry]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(plant, missed))
    return bundle


def place_again(entry):
    """The fault of an entry, whose line may have moved."""
    lines = (ROOT / entry["file"]).read_text().split("\n")
    places = [index for index, line in enumerate(lines) if line.split("//")[0].strip() == entry["old"]]
    if not places:
        sys.exit(f"{entry['file']}: no line is {entry['old']}")
    index = min(places, key=lambda index: abs(index + 1 - entry["line"]))
    return Fault(entry["file"], index, entry["kind"], entry["old"], entry["new"])


def processor():
    match = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1) if match else ""

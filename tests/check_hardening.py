#!/usr/bin/env python3
"""Whether programs and shared libraries are hardened: RELRO, all symbols bound at start, stack protector, checked calls of
the C library; and whether every C++ source of what users run is compiled so.

    check_hardening.py [--commands compile_commands.json TARGET...] [--files FILE...]

A program shows the last two where one of its sources has them. The commands tell of each source.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys


def readelf(option, file):
    return subprocess.run(["readelf", "--wide", option, file], check=True, capture_output=True, text=True).stdout


def lacks(file):
    """What the file has not."""
    segments, dynamic, symbols = (readelf(option, file) for option in ("--segments", "--dynamic", "--dyn-syms"))
    if "GNU_RELRO" not in segments:
        yield "RELRO"
    if not re.search(r"BIND_NOW|FLAGS_1\).*\bNOW\b", dynamic):
        yield "BIND_NOW"
    if "__stack_chk_fail" not in symbols:
        yield "the stack protector"
    if not re.search(r"\b__\w+_chk\b", symbols.replace("__stack_chk_fail", "")):
        yield "_FORTIFY_SOURCE"
    if re.search(r"GNU_STACK.*RWE", segments):
        yield "a stack that cannot be executed"


def is_compiled_without(words):
    """What the words of a command do not ask for; the last word about a thing counts."""
    protectors = [word for word in words if re.fullmatch(r"-f(no-)?stack-protector(-\w+)?", word)]
    if not protectors or protectors[-1] not in ("-fstack-protector-strong", "-fstack-protector-all"):
        yield "the stack protector"
    fortified = [word for word in words if re.match(r"-[DU]_FORTIFY_SOURCE\b", word)]
    if not fortified or fortified[-1] != "-D_FORTIFY_SOURCE=3":
        yield "_FORTIFY_SOURCE"


def command_findings(file, targets):
    counts = dict.fromkeys(targets, 0)
    for entry in json.loads(pathlib.Path(file).read_text()):
        words = shlex.split(entry["command"])
        made = words[words.index("-o") + 1]
        target = re.search(r"CMakeFiles/(\w+)\.dir/", made)
        if target is None or target[1] not in counts or not entry["file"].endswith((".cpp", ".cxx")):
            continue
        counts[target[1]] += 1
        for what in is_compiled_without(words):
            yield f"{made} is compiled without {what}"
    for target, count in counts.items():
        if count == 0:
            yield f"{file} has no source of {target}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", nargs="+", default=[], metavar="")
    parser.add_argument("--files", nargs="+", default=[], metavar="")
    options = parser.parse_args()
    findings = [f"{file} lacks {what}" for file in options.files for what in lacks(file)]
    if options.commands:
        findings += command_findings(options.commands[0], options.commands[1:])
    for finding in findings:
        print(finding)
    print(f"{len(options.files)} files, {max(0, len(options.commands) - 1)} targets, {len(findings)} findings")
    return 1 if findings or not (options.files or options.commands) else 0


if __name__ == "__main__":
    sys.exit(main())

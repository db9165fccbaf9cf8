#!/usr/bin/env python3
"""Each public header compiles alone: it includes all that it needs.

A header that is some source's first include is proven by the build. The others are compiled here, with the options of
the library's own sources.

    check_headers_alone.py BUILD_FOLDER
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def first_include(source):
    match = re.search(r"^#include (\S+)", source.read_text(), re.MULTILINE)
    return match.group(1).strip('"') if match else None


def compile_alone(options, folder, header):
    done = subprocess.run([*options, "-fsyntax-only", "-x", "c++", "-include", str(ROOT / header), "/dev/null"],
                          cwd=folder, capture_output=True, text=True)
    return header, done.returncode, done.stderr


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {pathlib.Path(command["file"]): command for command in commands}
    proven = {first_include(source) for source in sources
              if source.suffix == ".cpp" and source.is_relative_to(ROOT) and not source.is_relative_to(build)}
    headers = [header for listing in ("public_headers.txt", "train_headers.txt", "conform_headers.txt")
               for header in (build / listing).read_text().split()]
    alone = [header for header in headers if header not in proven]

    command = next(command for command in commands if re.search(r"unmetal\.dir/.*\.c(pp|xx)\.o", command["command"]))
    options = shlex.split(command["command"])
    del options[options.index("-o"):]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda header: compile_alone(options, command["directory"], header), alone))
    failures = [(header, errors) for header, status, errors in results if status != 0]
    for header, errors in failures:
        print(f"{header} does not compile alone:\n{errors}")
    print(f"{len(headers)} public headers, {len(alone)} of them compiled here, {len(failures)} do not compile alone")
    return 1 if failures or not alone else 0


if __name__ == "__main__":
    sys.exit(main())

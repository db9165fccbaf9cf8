#!/usr/bin/env python3
"""Whether programs and shared libraries are hardened: RELRO, all symbols bound at start, stack protector, checked calls of
the C library.

    check_hardening.py FILE...
"""

import re
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


def main():
    findings = [f"{file} lacks {what}" for file in sys.argv[1:] for what in lacks(file)]
    for finding in findings:
        print(finding)
    print(f"{len(sys.argv) - 1} files, {len(findings)} findings")
    return 1 if findings or len(sys.argv) == 1 else 0


if __name__ == "__main__":
    sys.exit(main())

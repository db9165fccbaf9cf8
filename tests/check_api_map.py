#!/usr/bin/env python3
"""Fails when docs/api-map.md says something of a header, a test or a back end that is not so, names no test of what is
there, or leaves out a name of tests/apple_names.txt. tests/check_api_map_test.py proves that it does.

    tests/check_api_map.py [ROOT]
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent.resolve()
OURS = re.compile(r"^`(mps|mtl)::(\w+)`$")
# Of Metal's, and ours in mps:: because they say what an image is.
METALS_IN_MPS = {"MTLPixelFormat", "MTLTextureType", "MTLTextureUsage"}
# Ours, where it is not Apple's name without the prefix: functions begin with a small letter, buffers are the only resources
# that stand alone, and regions in pixels have mtl::Region.
OTHER_NAMES = {
    "MTLCreateSystemDefaultDevice": "createSystemDefaultDevice",
    "MTLCopyAllDevices": "copyAllDevices",
    "MTLResource": "Buffer",
    "MPSRegion": "NormalizedRegion",
}
APPLE_NAMES = (ROOT / "tests" / "apple_names.txt").read_text().split()


@functools.lru_cache(maxsize=None)
def text_of(path: pathlib.Path) -> str:
    return path.read_text()


@functools.lru_cache(maxsize=None)
def public_headers(root: pathlib.Path) -> list[str]:
    """Those that are installed: unmetal.hpp includes them all."""
    return [text_of(root / path) for path in re.findall(r'^#include "([^"]+)"', text_of(root / "unmetal.hpp"), re.MULTILINE)]


def declares(text: str, name: str) -> bool:
    """Outside of classes."""
    types = rf"^(?:class|struct|enum class)\s+{name}\b(?!;)|^using {name}\b\s*="
    functions = rf"^(?=\S)(?:inline |constexpr |\[\[nodiscard\]\] )*[\w:<>&* ]+\b{name}\s*[(={{]"
    return re.search(f"{types}|{functions}", text, flags=re.MULTILINE) is not None


def uses(text: str, name: str) -> bool:
    """In code: neither in comments nor as the name of a file."""
    code = re.sub(r"//[^\n]*|^\s*#\s*include[^\n]*", "", text, flags=re.MULTILINE)
    return re.search(rf"\b{name}\b", code) is not None


def problem_of_test(test: str, name: str, root: pathlib.Path) -> str | None:
    if not test:
        return "names no test"
    if not (root / test).is_file() or not re.search(r"(?<!_cuda)_test\.cpp$", test) or test.startswith("mtl/cuda/"):
        return f"{test} is no test that every build has"
    return None if uses(text_of(root / test), name) else f"{test} does not use {name}"


def problem(cells: list[str], root: pathlib.Path = ROOT) -> str | None:
    """What is wrong with a row."""
    apple, ours, header, test, back_ends = cells
    if not ours:
        if header or test or not re.match(r"out: \w+", back_ends):
            return "neither ours nor out with a reason"
        name = apple[3:]
        if any(re.search(rf"^class {name}\b(?!;)", text, flags=re.MULTILINE) for text in public_headers(root)):
            return f"class {name} is there"
        return None
    match = OURS.match(ours)
    if match is None:
        return f"{ours} is no name"
    name = match.group(2)
    if (match.group(1) == "mtl") != (apple.startswith("MTL") and apple not in METALS_IN_MPS):
        return f"{ours} is no counterpart in the namespace of {apple}"
    if name != OTHER_NAMES.get(apple, apple[3:]):
        return f"{ours} is not its name without the prefix"
    path = root / header
    if not header or not path.is_file():
        return f"no header {header}"
    if not header.startswith(match.group(1) + "/") or not declares(text_of(path), name):
        return f"{header} does not declare {ours}"
    if found := problem_of_test(test, name, root):
        return found
    if back_ends not in ("", "CPU", "CPU, CUDA"):
        return f"back ends {back_ends}"
    if back_ends and ("CUDA" in back_ends) != any(path.parent.glob("cuda/*_cuda.*")):
        return f"back ends {back_ends}, {path.parent.name} has others"
    return None


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row about one of Apple's names."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 5 and re.match(r"M(PS|TL)", cells[0]):
            rows.append(cells)
    return rows


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    rows = rows_of((root / "docs" / "api-map.md").read_text())
    wrong = []
    names = set()
    for cells in rows:
        found = "named twice" if cells[0] in names else problem(cells, root)
        names.add(cells[0])
        if found:
            wrong.append(f"{cells[0]}: {found}")
    wrong += [f"{name}: has no row" for name in APPLE_NAMES if name not in names]
    print("\n".join(wrong))
    print(f"{len(rows)} rows, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
